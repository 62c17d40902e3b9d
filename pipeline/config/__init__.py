"""What to run: conf/ as checked, frozen dataclasses."""
