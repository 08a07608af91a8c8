"""One episode: the graph is streamed, a user is simulated, the end is classified."""
