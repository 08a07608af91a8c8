"""Where episodes run when not in the process that keeps the journal: other processes, other machines."""
