"""Data sets made from triples and labels: one module per benchmark, pure functions over tables."""
