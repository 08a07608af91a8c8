"""Pictures of what a run came to, with matplotlib; only with the extra `plots`."""
