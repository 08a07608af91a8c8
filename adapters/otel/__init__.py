"""A run's episodes as OpenTelemetry GenAI spans, to a file or an endpoint."""
