"""State in code: views, mined tool models and what they make of a call. No language model."""
