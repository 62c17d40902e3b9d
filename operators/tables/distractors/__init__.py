"""Tables and figures of the distractor paper."""
