"""A sandbox that the kernel holds: namespaces, read-only mounts, Landlock and seccomp, without root."""
