"""Embedders: text into vectors."""
