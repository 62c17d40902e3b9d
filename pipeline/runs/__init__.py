"""A run from its plan to its results, its progress and its costs."""
