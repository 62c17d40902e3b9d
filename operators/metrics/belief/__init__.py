"""BELIEF and BELIEF-ICL: one module per metric or family, and `belief`, all of them together."""
