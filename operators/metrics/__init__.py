"""What the answers say about a model: one module per metric, pure functions over tables."""
