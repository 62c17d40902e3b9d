"""Results in the formats of other tools: one module per tool, and `export.py` chooses."""
