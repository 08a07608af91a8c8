"""The replay buffer: transitions in and out."""
