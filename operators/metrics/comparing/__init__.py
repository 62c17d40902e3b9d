"""Two runs on the same facts: differences, tests, a verdict."""
