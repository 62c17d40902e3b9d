"""Models of transformers as engines: masked ones fill a mask, causal ones score and compare."""
