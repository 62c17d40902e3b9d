"""Engines: what answers prompts. One small protocol, one module for each implementation."""
