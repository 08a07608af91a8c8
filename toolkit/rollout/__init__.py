"""Running many episodes: engine, budgets, run directory, journal."""
