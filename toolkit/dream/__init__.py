"""What answers a tool call in a dream."""
