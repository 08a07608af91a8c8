"""Transition stores."""
