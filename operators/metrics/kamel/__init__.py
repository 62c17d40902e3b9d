"""KAMEL: precision, recall and F1 of sets of answers."""
