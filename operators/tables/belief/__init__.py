"""Tables and figures of BELIEF's papers."""
