"""Readers: one module a benchmark, from its authors' files to the canonical tables."""
