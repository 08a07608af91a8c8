"""Who answers a tool call: the dream, the real tool, or nobody."""
