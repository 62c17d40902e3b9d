"""What an engine is asked, shard by shard, and what of it is left to ask."""
