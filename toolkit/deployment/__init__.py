"""Deploy evaluated weights: evidence, versions, model cards, rollback."""
