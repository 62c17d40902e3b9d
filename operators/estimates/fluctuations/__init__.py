"""The spread of templates' accuracies, and the best one, from a sample of prompts."""
