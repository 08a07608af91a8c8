"""From weights that were measured to weights that are in use: evidence, versions, cards, the way back."""
