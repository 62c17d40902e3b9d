"""How one thing is done: pure functions over tables (no Ray, no Hydra, no file paths)."""
