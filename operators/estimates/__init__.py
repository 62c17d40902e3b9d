"""What the full run of a setting would give, estimated from a sample of its prompts."""
