"""PRobELM: candidates ranked by their likelihood."""
