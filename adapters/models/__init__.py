"""Chat models behind ports: the client of an OpenAI-compatible endpoint."""
