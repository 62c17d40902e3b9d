"""What the answers say about a model: one module a metric, pure functions over tables."""
