"""Import traces of other tools as transitions: modules for formats, combined by `importing`."""
