"""A kernel sandbox without root: namespaces, read-only mounts, Landlock and seccomp."""
