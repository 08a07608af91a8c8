"""From the dream to the real tools: a gate, hard limits, approvals, an audit log, and a stop in doubt."""
