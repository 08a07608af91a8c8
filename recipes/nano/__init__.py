"""Language models small enough to learn the support desk from scratch on a laptop's processor."""
