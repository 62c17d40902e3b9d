"""One setting estimated from a part of its prompts: from choosing them to the written tables."""
