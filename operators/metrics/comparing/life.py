"""The life of facts along an axis of models: where each is learned, and where it is forgotten."""

from collections.abc import Sequence
from itertools import pairwise

import polars as pl

from factsweep.operators.metrics.comparing.pairing import FACT
from factsweep.operators.schemas import schema

KINDS = ("always known", "learned", "learned anew", "forgotten", "known for a while", "never known")
HALF = 0.5  # of the prompts of a fact
LIVES = schema("""
    relation_id text, pair_id text, life text, learned_at text, forgotten_at text,
    is_known bool[], shares float[]
""") | {"life": pl.Enum(KINDS)}


def lives(
    shares: pl.DataFrame, labels: Sequence[str], *, known_share: float = HALF
) -> pl.DataFrame:
    """Say how each fact fares along the labels, in their order: one row per fact (columns: LIVES).

    `shares` has one row per label and fact (label, relation_id, pair_id, share): the share of the
    fact's prompts that are answered rightly. A fact is learned at the first label from which its
    share exceeds `known_share` at two labels in a row. It is forgotten at the first later label
    from which its share is below `known_share` at two in a row, and then it can be learned anew. A
    share of exactly `known_share` counts for neither. `learned_at` and `forgotten_at` are the first
    of their kind; `is_known` says for each label whether the fact is learned and not forgotten.

    - always known: learned at the first label and never forgotten; never known: never learned;
    - learned: learned later and never forgotten;
    - forgotten: learned at the first label, and forgotten;
    - learned anew: known at the last label, after it was forgotten;
    - known for a while: learned later or anew, and not known at the last label.

    Facts without a share at some label are left out; fewer than two labels give no row.

    >>> shares = pl.DataFrame({"label": ["a", "b", "c"], "relation_id": ["P1"] * 3,
    ...     "pair_id": ["t"] * 3, "share": [0.0, 0.75, 1.0]})
    >>> lives(shares, ["a", "b", "c"]).row(0)[2:6]
    ('learned', 'b', None, [False, True, True])
    """
    if len(labels) < 2:
        return LIVES.to_frame()
    order = pl.col("label").cast(pl.Enum(labels))
    rows = shares.filter(pl.col("label").is_in(labels)).drop_nulls("share").sort(*FACT, order)
    curves = rows.group_by(*FACT, maintain_order=True).agg("share")
    complete = curves.filter(pl.col("share").list.len() == len(labels))
    life_rows = [
        (relation_id, pair_id, *_life(curve, labels, known_share), curve)
        for relation_id, pair_id, curve in complete.iter_rows()
    ]
    return pl.DataFrame(life_rows, schema=LIVES, orient="row")


def _life(
    curve: Sequence[float], labels: Sequence[str], known_share: float
) -> tuple[str, str | None, str | None, list[bool]]:
    """The columns of LIVES from `life` to `is_known`."""
    turns = _turns(curve, known_share)
    learned_at, forgotten_at = (
        labels[turns[number]] if len(turns) > number else None for number in range(2)
    )
    is_known = [sum(turn <= place for turn in turns) % 2 == 1 for place in range(len(curve))]
    if not turns:
        kind = "never known"
    elif len(turns) <= 2 and turns[0] == 0:
        kind = "forgotten" if forgotten_at else "always known"
    elif is_known[-1]:
        kind = "learned anew" if forgotten_at else "learned"
    else:
        kind = "known for a while"
    return kind, learned_at, forgotten_at, is_known


def _turns(curve: Sequence[float], known_share: float) -> list[int]:
    """The places at which a fact is learned and forgotten, alternately."""
    turns: list[int] = []
    for place, pair in enumerate(pairwise(curve)):
        is_known = len(turns) % 2 == 1
        if max(pair) < known_share if is_known else min(pair) > known_share:
            turns.append(place)
    return turns


def threshold_variant(known_share: float) -> str | None:
    """The part of a variant that names the threshold of knowledge; null for the default.

    >>> threshold_variant(0.5), threshold_variant(0.8)
    (None, 'known_share=0.8')
    """
    return None if known_share == HALF else f"known_share={known_share:g}"


def counted(lives: pl.DataFrame, by: str = "relation_id") -> pl.DataFrame:
    """How many facts fare in each way, over all (null) and by relation, or another column.

    Columns: that one, life, n_pairs; ways that no fact goes have no row.

    >>> row = ("P1", "t", "learned", "b", None, [False, True, True], [0.0, 1.0, 1.0])
    >>> counted(pl.DataFrame([row], LIVES, orient="row")).rows()
    [(None, 'learned', 1), ('P1', 'learned', 1)]
    """
    everything = lives.with_columns(pl.lit(None, lives.schema[by]).alias(by))
    counts = pl.concat([everything, lives]).group_by(by, "life")
    return counts.agg(n_pairs=pl.len().cast(pl.Int64)).sort(by, "life")
