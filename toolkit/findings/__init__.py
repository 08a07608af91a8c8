"""Small named rules that report suspicious events."""
