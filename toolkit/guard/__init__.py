"""What a dreaming process may not do: connect, write, start programs. Seen from audit events."""
