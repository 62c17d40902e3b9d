"""Readable tables from tidy metrics."""
