"""Train on the kit's rollouts with TRL; needs the extra `train`."""
