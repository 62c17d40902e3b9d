"""A run from its plan to its results, how it is followed, and what it costs."""
