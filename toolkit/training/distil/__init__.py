"""From recordings to a model that stands in for tools: annotations, lessons, exactness, a gate."""
