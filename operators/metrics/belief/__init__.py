"""BELIEF and BELIEF-ICL: a metric a module, and `belief`, all of them together."""
