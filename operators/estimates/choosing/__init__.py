"""Which prompts of a setting are asked first: a seeded order whose every beginning is a sample."""
