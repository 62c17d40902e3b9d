"""When and where it is done: stages, artifacts, shards, Ray and the command line."""
