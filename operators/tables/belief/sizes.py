"""How large and how diverse a set is, as rows of the metrics table."""

import polars as pl

from factsweep.operators.datasets.facts import Facts, counts
from factsweep.operators.metrics.data_set.diversity import Encode, Parse, diversity
from factsweep.operators.schemas import empty


def sizes(
    facts: Facts, benchmark: str, *, parse: Parse | None = None, encode: Encode | None = None
) -> pl.DataFrame:
    """The set's own numbers as rows of the metrics table, with neither model nor setting.

    The counts of Table 1, and those of Table 8: `syntax` with `parse`, `semantics` with `encode`.
    """
    of_all = diversity(facts, parse=parse, encode=encode).tail(1)
    (of_set,) = of_all.select("quantity", "lexicon", "syntax", "semantics").to_dicts()
    numbers = {**counts(facts), **{name: n for name, n in of_set.items() if n is not None}}
    rows = {
        "benchmark": benchmark,
        "metric": list(numbers),
        "value": [float(number) for number in numbers.values()],
    }
    return pl.concat([empty("metrics"), pl.DataFrame(rows)], how="diagonal_relaxed")
