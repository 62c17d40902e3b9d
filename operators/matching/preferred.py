"""The distractors that a right answer beats: preferences → the table `preferred`."""

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.schemas import columns

# The distractors of a prompt that a page shows.
N_HARDEST = 5


def add_beaten(preferences: pl.DataFrame) -> pl.DataFrame:
    """Count the distractors that are less plausible than the right answer, and keep the hardest.

    `preferences` is the canonical table, joined with its prompts. Added: `n_distractors`;
    `n_beaten`, whose n-th number counts those beaten among the first n; `hardest`, the most
    plausible distractors, hardest first. A tie is no win.

    Source: "Factual Knowledge Assessment of Language Models Using Distractors", Equation 2.
    """
    logprobs = pl.col("distractors").list.eval(pl.element().struct.field("logprob"))
    # The difference of two unequal floats is never 0; of two that are -inf it is NaN, a tie.
    beaten = (pl.col("logprob") - logprobs).list.eval((pl.element() > 0) & ~pl.element().is_nan())
    order = [pl.element().struct.field(name) for name in ("logprob", "entity_id")]
    most_plausible = pl.element().sort_by(order, descending=[True, False])
    return preferences.with_columns(
        n_distractors=pl.col("distractors").list.len(),
        n_beaten=beaten.list.eval(pl.element().cast(pl.UInt32).cum_sum()),
        hardest=pl.col("distractors").list.eval(most_plausible.head(N_HARDEST)),
    )


_KEYS = ["prompt_id", "entity_id"]
# Optional columns of a file, in addition to the keys and the log-probability.
FURTHER = ("label", "n_tokens", "open_logprob")


def read_preferences(
    preferences: pl.DataFrame, prompts: pl.DataFrame, sets: pl.DataFrame, n: int
) -> pl.DataFrame:
    """The right answer of each prompt with its distractors, from one row per candidate.

    `preferences` has prompt_id, entity_id and logprob (nats; summed over the entity's names), and
    may have the columns FURTHER. `prompts` is the canonical table, `sets` the table candidate_sets.
    Ranked candidates are ordered by rank and must be complete; otherwise the n most plausible are
    the distractors. A prompt without a row for its answer is left out.

    Raises:
        InputError: a row is of no candidate of its prompt, occurs twice, or is missing.
    """
    absent = [pl.lit(None).alias(name) for name in FURTHER if name not in preferences.columns]
    answers = prompts.select("prompt_id", "candidates_id", "answer_id", "left_out")
    sets = sets.select("candidates_id", "entity_id", "rank", first=pl.col("labels").list.first())
    strangers = preferences.join(answers, on="prompt_id", how="anti", maintain_order="left")
    _refuse(strangers, "belongs to no prompt of this benchmark; check prompt= and seed=")
    rows = preferences.with_columns(absent).join(answers, on="prompt_id", maintain_order="left")
    _refuse(rows.filter(pl.struct(_KEYS).is_duplicated()), "occurs twice; leave one out")
    unknown = rows.join(sets, on=["candidates_id", "entity_id"], how="anti")
    _refuse(unknown, "is no candidate of this prompt; check prompt= and seed=")
    rows = rows.join(sets, on=["candidates_id", "entity_id"], maintain_order="left")
    rows = rows.with_columns(label=pl.coalesce(pl.col("label").cast(pl.String), "first"))
    right = rows.filter(pl.col("entity_id") == pl.col("answer_id"))
    wrong = rows.filter(
        pl.col("entity_id") != pl.col("answer_id"),
        ~pl.col("left_out").list.contains(pl.col("entity_id")),
    )
    # The order of a ranked set must have no gap.
    ranked = sets.filter(pl.col("rank") > 0).select("candidates_id", "entity_id")
    needed = right.select("prompt_id", "candidates_id").join(ranked, on="candidates_id")
    _refuse(needed.join(wrong, on=_KEYS, how="anti"), "has no row; give one for each candidate")
    order = ["prompt_id", "rank", "logprob", "entity_id"]
    distractors = (
        wrong.with_columns(pl.col("n_tokens").cast(pl.UInt32))
        .sort(order, descending=[False, False, True, False])
        .group_by("prompt_id", maintain_order=True)
        .agg(distractors=pl.struct("entity_id", "label", "logprob", "n_tokens").head(n))
    )
    table = right.join(distractors, on="prompt_id", how="left", maintain_order="left")
    table = table.with_columns(pl.col("distractors").fill_null([]))
    fields = columns("preferences")
    return table.select(fields.names()).cast(fields)


def _refuse(rows: pl.DataFrame, problem: str) -> None:
    for prompt_id, entity_id in rows.select(_KEYS).head(1).iter_rows():
        raise InputError(f"prompt {prompt_id}, entity {entity_id}: it {problem}.")
