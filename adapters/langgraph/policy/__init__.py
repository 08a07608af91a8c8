"""The agent's chat model answered by a policy."""
