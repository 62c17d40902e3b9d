"""How one thing is done: pure functions over tables (no Ray, no Hydra, no file paths)."""

import os

# Else Polars adds the parts of a group in an order that changes from one call to the next, with
# maintain_order=True, too, and so do the last digits of a sum of fractions:
# https://github.com/pola-rs/polars/issues/25163
os.environ["POLARS_NO_PARTITION"] = "1"
