"""Data sets made from triples and labels: one module a benchmark, pure functions over tables."""
