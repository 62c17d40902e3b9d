"""How one thing is done: pure functions over tables and batches (no Ray, no Hydra, no file paths)."""
