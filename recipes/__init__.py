"""Worked examples that are also products."""
