"""Training in the dream."""
