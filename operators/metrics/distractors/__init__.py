"""Distractors: whether a model prefers a right answer to plausible wrong ones."""
