"""A support desk over a real SQLite database, and an agent that works it."""
