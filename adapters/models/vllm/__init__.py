"""A vLLM server as a process of its own: started, watched, looked at, drained and stopped; never imported."""
