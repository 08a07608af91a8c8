"""Everything that touches somebody else's system, each behind a port of the toolkit."""
