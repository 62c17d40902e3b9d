"""Prompts: settings, templates filled with names, demonstrations, and the order they are decoded in."""
