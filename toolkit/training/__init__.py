"""Learning from episodes: turns become samples, samples become updates, and every doubt is an alarm."""
