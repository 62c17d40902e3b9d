"""Readers: one module per benchmark, from its authors' files to the canonical tables."""
