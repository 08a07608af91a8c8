"""An experience model that learned: it decides what becomes of a call, and code writes the answer."""
