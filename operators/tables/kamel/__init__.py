"""Tables and figures of KAMEL's paper."""
