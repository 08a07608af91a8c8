"""dreamgym.toml: what it may say, how it is found, read and written."""
