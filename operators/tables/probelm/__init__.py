"""Tables and figures of PRobELM's paper."""
