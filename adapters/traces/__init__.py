"""Traces that other people's tools recorded, as transitions: one module a format, joined by `importing`."""
