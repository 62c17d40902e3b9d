"""Which of its distractors a right answer beats: preferences → the table `preferred`."""

import polars as pl

# The distractors of a prompt that a page shows.
N_HARDEST = 5


def preferred(preferences: pl.DataFrame) -> pl.DataFrame:
    """Count the distractors that are less plausible than the right answer, and keep the hardest.

    `preferences` is the canonical table, joined with its prompts. Added: `n_distractors`;
    `n_beaten`, whose n-th number counts those beaten among the first n; `hardest`, the most
    plausible distractors, hardest first. A tie is no win.

    Source: "Factual Knowledge Assessment of Language Models Using Distractors", Equation 2.

    >>> names = ("entity_id", "label", "logprob", "n_tokens")
    >>> distractors = [dict(zip(names, each)) for each in [
    ...     ("Q1", "Rome", -2.0, 1), ("Q2", "Oslo", -4.0, 1), ("Q3", "Bonn", -3.0, 1),
    ... ]]
    >>> rows = preferred(pl.DataFrame({"logprob": [-3.0], "distractors": [distractors]}))
    >>> rows.select("n_distractors", "n_beaten").row(0)
    (3, [0, 1, 1])
    >>> [each["label"] for each in rows["hardest"][0]]
    ['Rome', 'Bonn', 'Oslo']
    """
    logprobs = pl.col("distractors").list.eval(pl.element().struct.field("logprob"))
    # The difference of two unequal floats is never 0; of two that are -inf it is NaN, a tie.
    beaten = (pl.col("logprob") - logprobs).list.eval((pl.element() > 0) & ~pl.element().is_nan())
    most_plausible = pl.element().sort_by(
        pl.element().struct.field("logprob"),
        pl.element().struct.field("entity_id"),
        descending=[True, False],
    )
    return preferences.with_columns(
        n_distractors=pl.col("distractors").list.len(),
        n_beaten=beaten.list.eval(pl.element().cast(pl.UInt32).cum_sum()),
        hardest=pl.col("distractors").list.eval(most_plausible.head(N_HARDEST)),
    )
