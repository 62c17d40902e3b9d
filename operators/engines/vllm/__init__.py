"""vLLM as an engine: how it is started, what it is told of a request, and how it is fed."""
