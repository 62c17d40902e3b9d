"""Confidence of a decoder model: how often its samples agree with its greedy answer."""

import polars as pl

from factsweep.operators.matching.lemmas import matches


def confidence(greedy: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    r"""Give each sampled prompt the share (0 to 1) of its samples that match its greedy answer.

    `greedy` has one row per prompt, `samples` one per sampled answer; both prompt_id and key. The
    result (prompt_id, confidence; sorted) has the prompts that have both. An empty answer matches
    nothing: an empty greedy answer has confidence 0, and an empty sample counts as a miss.

    Source: BELIEF-ICL, section 3.2, item 3.

    >>> greedy = pl.DataFrame({"prompt_id": ["p1", "p2"], "key": ["\x1fguitar\x1f", None]})
    >>> samples = pl.DataFrame({
    ...     "prompt_id": ["p1", "p1", "p1", "p1", "p2"],
    ...     "key": ["\x1fguitar\x1f", "\x1fa\x1fguitar\x1f", "\x1fpiano\x1f", None, None],
    ... })
    >>> confidence(greedy, samples)
    shape: (2, 2)
    ┌───────────┬────────────┐
    │ prompt_id ┆ confidence │
    │ ---       ┆ ---        │
    │ str       ┆ f64        │
    ╞═══════════╪════════════╡
    │ p1        ┆ 0.5        │
    │ p2        ┆ 0.0        │
    └───────────┴────────────┘
    """
    counts = samples.group_by("prompt_id", "key").agg(n=pl.len())
    answered = counts.join(greedy.select("prompt_id", greedy="key"), on="prompt_id")
    agreeing = pl.col("n").filter(matches(pl.col("key"), pl.col("greedy"))).sum()
    share = (agreeing / pl.sum("n")).alias("confidence")
    return answered.group_by("prompt_id").agg(share).sort("prompt_id")
