"""Several runs over the same facts: a band around all, certain ranks, and the life of facts.

All runs are resampled together (module `bootstrap`): a round draws the same facts for each, so that
what facts have in common cancels from differences. The band is the sup-t band: it reaches as many
SDs as the 95 % quantile of the largest |deviation| / SD over all runs (Montiel Olea and
Plagborg-Møller 2019, algorithm 1). Two runs are told apart where their difference exceeds the same
quantile over all pairs of runs, and a run's rank lies between the runs that are certainly better
and those that are certainly worse (Mogstad, Romano, Shaikh and Wilhelm 2024, section 3).

With few facts that alone is too narrow, for two reasons. The SDs are known from few facts only, so
that the errors are Student's. And shares near 0 or 1 are skewed, and do not vary at all where no
answer was right. So the band of a run is the exact interval of a share (Clopper and Pearson 1934)
among as many facts as the design effect leaves (Korn and Graubard 1998); two further events in the
variances keep that effect from being 0 (as Agresti and Coull 1998 add two).
`benchmarks/bench_intervals.py --band` measures how often the band holds.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from factsweep.operators.errors import InputError
from factsweep.operators.metrics.comparing.comparison import holm, sign_flip
from factsweep.operators.metrics.comparing.paired import FACT
from factsweep.operators.metrics.shared.bootstrap import (
    FloatArray,
    estimate,
    relations,
    resampled_sums,
)
from factsweep.operators.schemas import schema

ALONG = schema("""
    label text, value float, ci_low float, ci_high float, band_low float, band_high float,
    difference float, difference_low float, difference_high float, p_holm float, rank_low int,
    rank_high int, n_pairs int
""")
KINDS = ("always known", "learned", "learned anew", "forgotten", "known for a while", "never known")
HALF = 0.5  # of the prompts of a fact
LIVES = schema("""
    relation_id text, pair_id text, life text, learned_at text, forgotten_at text,
    is_known bool[], shares float[]
""") | {"life": pl.Enum(KINDS)}
_LEVEL = 0.95
_Z = 1.959963984540054  # standard errors on each side of a single interval
_NOTHING = 1e-12  # an SD of rounding errors alone
_UNSEEN = 2.0  # events
_DIGITS = 14  # of a share; sums of weights end next to 1


def along(
    terms: pl.DataFrame, labels: Sequence[str], *, reference: str, seed: int, n_rounds: int = 1000
) -> pl.DataFrame:
    """Set runs side by side: one row per label, in their order (columns: ALONG).

    `terms` has one row per label and fact (label, relation_id, pair_id, numerator, denominator): a
    run's value is the sum of its numerators over that of its denominators. Facts that a run lacks
    are left out of all. `difference` is a run's value less that of the reference, `p_holm` its
    two-sided p-value (`sign_flip` over facts) after Holm's correction over all runs but the
    reference. Ranks count from 1, the highest value. The band holds for all values at once.

    Raises:
        InputError: the runs have no fact in common.
    """
    everywhere = terms.group_by(FACT).agg(n=pl.n_unique("label")).filter(n=len(labels))
    facts = terms.join(everywhere, on=FACT, how="semi")
    if facts.is_empty():
        raise InputError("these runs have no fact in common; compare runs over the same facts.")
    rounds = _rounds(facts, labels, seed, n_rounds)
    n_pairs = facts.height // len(labels)
    degrees = n_pairs - facts["relation_id"].n_unique()
    base, (low, high) = labels.index(reference), band(rounds, degrees, n_pairs)
    best, worst = _ranks(rounds, degrees)
    change = pl.col("numerator") - pl.col("numerator_reference")
    of_base = facts.filter(label=reference).select(*FACT, numerator_reference="numerator")
    changes = facts.join(of_base, on=FACT).select("label", change)
    rows = []
    for place, label in enumerate(labels):
        own = estimate(rounds[:, place], degrees)
        difference = estimate(rounds[:, place] - rounds[:, base], degrees)
        ends = (None, None) if own.value is None else (low[place], high[place])
        own_changes = changes.filter(label=label)["numerator"].to_numpy()
        p = None if place == base else sign_flip(own_changes)
        rows.append((label, *own, *ends, *difference, p, best[place], worst[place], n_pairs))
    return pl.DataFrame(rows, schema=ALONG, orient="row").with_columns(holm(pl.col("p_holm")))


def _rounds(facts: pl.DataFrame, labels: Sequence[str], seed: int, n_rounds: int) -> FloatArray:
    """The value of each label in each round (rounds × labels); round 0 is the sample itself."""
    sums = np.zeros((n_rounds + 1, 2 * len(labels)))
    for relation, rows in relations(facts, "pair_id", "label"):
        sides = [
            rows.filter(label=label).select(pl.col("numerator", "denominator").name.suffix(label))
            for label in labels
        ]
        matrix = pl.concat(sides, how="horizontal").to_numpy()
        sums = sums + resampled_sums(matrix, seed, relation, n_rounds)
    numerators, denominators = sums[:, 0::2], sums[:, 1::2]
    return numerators / denominators


def band(rounds: FloatArray, degrees: int, n_facts: int) -> tuple[FloatArray, FloatArray]:
    """The low and high ends of a 95 % band that holds for all shares (columns of `rounds`) at once.

    `degrees` are the facts less the relations. The band is no narrower than a single interval.
    """
    # scipy.stats takes a second to import.
    from scipy.special import betaincinv, ndtr

    reach = max(_reach(rounds), _Z)
    value, variance = rounds[0].round(_DIGITS).clip(0, 1), rounds[1:].var(axis=0)
    unseen = _UNSEEN / n_facts**2
    design_effect = (variance + unseen) / (value * (1 - value) / n_facts + unseen)
    n = n_facts / design_effect * (reach / _widened(reach, degrees)) ** 2
    n_right, n_wrong, tail = n * value, n * (1 - value), ndtr(-reach)
    low: FloatArray = betaincinv(n_right.clip(_NOTHING), n_wrong + 1, tail)
    high: FloatArray = betaincinv(n_right + 1, n_wrong.clip(_NOTHING), 1 - tail)
    return np.minimum(low, value), np.maximum(high, value)


def _reach(rounds: FloatArray) -> float:
    """The 95 % quantile of the largest |deviation| in SDs, of all columns that vary."""
    deviations, sd = rounds[1:] - rounds[0], rounds[1:].std(axis=0)
    varies = sd > _NOTHING
    if not varies.any():
        return 0.0
    return float(np.quantile((np.abs(deviations)[:, varies] / sd[varies]).max(axis=1), _LEVEL))


def _widened(reach: float, degrees: int) -> float:
    """The quantile of Student's distribution that is as far out as this one of the normal one."""
    from scipy.special import ndtr, stdtrit

    return float(-stdtrit(max(1, degrees), ndtr(-reach)))


def _ranks(rounds: FloatArray, degrees: int) -> tuple[list[int], list[int]]:
    """The best and the worst rank that each label may have, at the level for all at once."""
    n = rounds.shape[1]
    better = np.zeros((n, n), np.bool_)
    one, other = np.triu_indices(n, 1)
    apart = rounds[:, one] - rounds[:, other]
    reach = _widened(_reach(apart), degrees) * apart[1:].std(axis=0)
    certain = np.abs(apart[0]) > reach + _NOTHING
    better[one, other] = certain & (apart[0] > 0)
    better[other, one] = certain & (apart[0] < 0)
    return possible_ranks(better)


def possible_ranks(better: NDArray[np.bool_]) -> tuple[list[int], list[int]]:
    """The best and the worst rank of each, where a row is certainly better than a column.

    >>> possible_ranks(np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]], np.bool_))
    ([1, 2, 2], [1, 3, 3])
    """
    best, worst = 1 + better.sum(0), len(better) - better.sum(1)
    return best.tolist(), worst.tolist()


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
