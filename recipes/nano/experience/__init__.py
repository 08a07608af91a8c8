"""A nano experience model of the desk: it decides what becomes of a call, in ten tokens."""
