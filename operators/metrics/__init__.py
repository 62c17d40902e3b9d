"""Metrics of a model's answers: one module per metric, pure functions over tables."""
