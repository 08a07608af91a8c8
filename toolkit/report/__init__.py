"""What people read after a run: terminal text and JSON."""
