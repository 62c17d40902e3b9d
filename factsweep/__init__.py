"""Measure what language models know, from Python."""
