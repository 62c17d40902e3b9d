"""Engines that decode: the pool, its queue, open shards, and what happens when an engine dies."""
