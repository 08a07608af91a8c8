"""Which tasks are worth the next episodes: what is known of each, what is chosen, what is made anew."""
