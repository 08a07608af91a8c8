"""What a graph holds and does, read from its code before anything runs."""
