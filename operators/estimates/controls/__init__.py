"""Sharper estimates with an earlier run, whose answers to all prompts are known."""
