"""What is done about engines, nodes and files that fail."""
