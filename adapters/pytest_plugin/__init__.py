"""Dreams in pytest: the `dream` fixture, its assertions and its cassettes. `plugin` is what pytest loads."""
