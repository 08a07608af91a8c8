"""A nano model that marks checklists, in the form of the other nano models."""
