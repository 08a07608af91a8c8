"""Continued training on the real tools, supervised."""
