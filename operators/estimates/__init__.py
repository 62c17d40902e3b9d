"""Estimates of the numbers of a setting's full run, from a sample of its prompts."""
