"""Imagined answers of unrecorded tools: a model invents consistent entities, and code tracks state."""
