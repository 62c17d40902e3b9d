"""A named sweep, night after night, compared with a baseline."""
