"""Prompts: settings, filled templates, demonstrations, and the order they are decoded in."""
