"""BELIEF and BELIEF-ICL: one module per metric, and `belief`, all of them together."""
