"""A server as an engine: any that speaks OpenAI's protocol."""
