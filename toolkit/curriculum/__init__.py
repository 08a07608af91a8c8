"""Choose the tasks of the next episodes: estimates, sampling, synthetic tasks."""
