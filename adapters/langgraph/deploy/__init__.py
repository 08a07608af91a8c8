"""Promotion of weights, and agents that use what is deployed."""
