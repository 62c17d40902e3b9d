"""The life of facts along an axis of models: learned, forgotten, learned anew, always, never."""

from collections.abc import Sequence

import polars as pl

from factsweep.operators.metrics.comparing.pairing import FACT
from factsweep.operators.schemas import schema

KINDS = ("always known", "learned", "learned anew", "forgotten", "known for a while", "never known")
LIVES = schema("""
    relation_id text, pair_id text, life text, known_at text, learned_at text, forgotten_at text,
    n_turns int, shares float[]
""") | {"life": pl.Enum(KINDS)}


def lives(shares: pl.DataFrame, labels: Sequence[str], *, known_share: float) -> pl.DataFrame:
    """Say how each fact fares along the labels, in their order: one row per fact (columns: LIVES).

    `shares` has one row per label and fact (label, relation_id, pair_id, share): the share of the
    fact's prompts that are answered rightly. A fact is known where the share is at least
    `known_share`; facts that a label lacks are left out. `learned_at` is the first label from which
    it is known after it was not, `forgotten_at` the first at which it no longer is, `known_at` the
    first at which it is known at all, and `n_turns` counts how often one became the other.

    - always known, never known: at all labels, at none;
    - learned, forgotten: one turn, to known or from it;
    - learned anew: known at the last label after more than one turn;
    - known for a while: not known at the last label after more than one turn.

    >>> shares = pl.DataFrame({"label": ["a", "b", "c"], "relation_id": ["P1"] * 3,
    ...     "pair_id": ["t"] * 3, "share": [0.0, 0.75, 0.25]})
    >>> lives(shares, ["a", "b", "c"], known_share=0.5).row(0)[2:7]
    ('known for a while', 'b', 'b', 'c', 2)
    """
    order = pl.col("label").cast(pl.Enum(labels))
    rows = shares.filter(pl.col("label").is_in(labels)).sort(*FACT, order)
    facts = rows.group_by(*FACT, maintain_order=True).agg("share", "label")
    whole = facts.filter(pl.col("label").list.len() == len(labels))
    found = [
        (relation, pair, *_life([s >= known_share for s in each], labels), each)
        for relation, pair, each in whole.select(*FACT, "share").iter_rows()
    ]
    return pl.DataFrame(found, schema=LIVES, orient="row")


def _life(
    known: Sequence[bool], labels: Sequence[str]
) -> tuple[str, str | None, str | None, str | None, int]:
    turns = [i for i in range(1, len(known)) if known[i] != known[i - 1]]
    learned = next((labels[i] for i in turns if known[i]), None)
    forgotten = next((labels[i] for i in turns if not known[i]), None)
    first = next((label for label, is_known in zip(labels, known, strict=True) if is_known), None)
    if not turns:
        kind = "always known" if known[-1] else "never known"
    elif len(turns) == 1:
        kind = "learned" if known[-1] else "forgotten"
    else:
        kind = "learned anew" if known[-1] else "known for a while"
    return kind, first, learned, forgotten, len(turns)


def counted(lives: pl.DataFrame, by: str = "relation_id") -> pl.DataFrame:
    """How many facts fare in each way, over all (null) and by relation, or another column.

    Columns: that one, life, n_pairs; ways that no fact goes have no row.

    >>> rows = pl.DataFrame([("P1", "t", "learned", "b", "b", None, 1, [0.0, 1.0])], LIVES,
    ...     orient="row")
    >>> counted(rows).rows()
    [(None, 'learned', 1), ('P1', 'learned', 1)]
    """
    everything = lives.with_columns(pl.lit(None, lives.schema[by]).alias(by))
    counts = pl.concat([everything, lives]).group_by(by, "life")
    return counts.agg(n_pairs=pl.len().cast(pl.Int64)).sort(by, "life")
