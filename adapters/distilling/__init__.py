"""The distilling of experience models over real buffers, graphs, endpoints and model directories."""
