"""LangGraph: the gate at its leaves, graph loading, episodes."""
