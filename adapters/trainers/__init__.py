"""TRL as the trainer of rollouts that the kit owns; only with the extra `train`."""
