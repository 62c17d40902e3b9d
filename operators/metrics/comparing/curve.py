"""Several runs over the same facts: a band around all values, certain ranks, the life of facts.

All runs are resampled together (module `bootstrap`): a round draws the same facts for each run, so
that shared hardness cancels from differences. The sup-t band reaches as many SDs as the 95 %
quantile of the largest |deviation| / SD over all runs (Montiel Olea and Plagborg-Møller 2019,
algorithm 1). Two runs differ where their difference exceeds the same quantile over all pairs of
runs; a run's rank lies between the runs that are certainly better and those that are certainly
worse (Mogstad, Romano, Shaikh and Wilhelm 2024, section 3).

With few facts that band is too narrow: their SDs have Student's errors, and shares near 0 or 1 are
skewed or never vary. So a run's band is the exact interval of a share (Clopper and Pearson 1934)
among as many facts as the design effect leaves (Korn and Graubard 1998), with two further events in
the variances (as in Agresti and Coull 1998). `bench_intervals.py --band` measures its coverage.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.metrics.comparing.paired import FACT
from factsweep.operators.metrics.shared import bootstrap
from factsweep.operators.schemas import schema

ALONG = schema("""
    label text, value float, ci_low float, ci_high float, band_low float, band_high float,
    rank_low int, rank_high int, n_pairs int
""")
KINDS = ("always known", "learned", "learned anew", "forgotten", "known for a while", "never known")
HALF = 0.5  # of the prompts of a fact
LIVES = schema("""
    relation_id text, pair_id text, life text, learned_at text, forgotten_at text,
    is_known bool[], shares float[]
""") | {"life": pl.Enum(KINDS)}
_LEVEL = 0.95
_Z = 1.959963984540054  # standard errors on each side of a single interval
_ROUNDING = 1e-12  # an SD of rounding errors alone
_EXTRA_EVENTS = 2.0
_DIGITS = 14  # of a share; sums of weights end next to 1


def compare_along(
    terms: pl.DataFrame, labels: Sequence[str], *, seed: int, n_rounds: int = 1000
) -> pl.DataFrame:
    """Set runs side by side: one row per label, in their order (columns: ALONG).

    `terms` has one row per label and fact (label, relation_id, pair_id, numerator, denominator): a
    run's value is the sum of its numerators over that of its denominators, over the facts that all
    runs have. Rank 1 is the highest value. The band holds for all values at once.

    Raises:
        InputError: the runs have no fact in common.
    """
    in_all_runs = terms.group_by(FACT).agg(n=pl.n_unique("label")).filter(n=len(labels))
    facts = terms.join(in_all_runs, on=FACT, how="semi")
    if facts.is_empty():
        raise InputError("these runs have no fact in common; compare runs over the same facts.")
    rounds = _resample_values(facts, labels, seed, n_rounds)
    n_pairs = facts.height // len(labels)
    degrees = n_pairs - facts["relation_id"].n_unique()
    low, high = band(rounds, degrees, n_pairs)
    best, worst = _rank_range(rounds, degrees)
    rows = []
    for index, label in enumerate(labels):
        value = bootstrap.estimate(rounds[:, index], degrees)
        ends = (None, None) if value.value is None else (low[index], high[index])
        rows.append((label, *value, *ends, best[index], worst[index], n_pairs))
    return pl.DataFrame(rows, schema=ALONG, orient="row")


def _resample_values(
    facts: pl.DataFrame, labels: Sequence[str], seed: int, n_rounds: int
) -> bootstrap.FloatArray:
    """The value of each label in each round (rounds × labels); round 0 is the sample itself."""
    sums = np.zeros((n_rounds + 1, 2 * len(labels)))
    for relation, rows in bootstrap.relations(facts, "pair_id", "label"):
        sides = [
            rows.filter(label=label).select(pl.col("numerator", "denominator").name.suffix(label))
            for label in labels
        ]
        matrix = pl.concat(sides, how="horizontal").to_numpy()
        sums = sums + bootstrap.resampled_sums(matrix, seed, relation, n_rounds)
    values: bootstrap.FloatArray = sums[:, 0::2] / sums[:, 1::2]
    return values


def band(
    rounds: bootstrap.FloatArray, degrees: int, n_facts: int
) -> tuple[bootstrap.FloatArray, bootstrap.FloatArray]:
    """The ends of a 95 % band that holds for all shares (columns of `rounds`) at once.

    `degrees` is the number of facts less that of relations. The band is no narrower than a single
    interval.
    """
    # scipy.stats takes a second to import.
    from scipy.special import betaincinv, ndtr

    reach = max(_sup_t(rounds), _Z)
    value, variance = rounds[0].round(_DIGITS).clip(0, 1), rounds[1:].var(axis=0)
    extra = _EXTRA_EVENTS / n_facts**2
    design_effect = (variance + extra) / (value * (1 - value) / n_facts + extra)
    n = n_facts / design_effect * (reach / _student_quantile(reach, degrees)) ** 2
    n_right, n_wrong, tail = n * value, n * (1 - value), ndtr(-reach)
    low: bootstrap.FloatArray = betaincinv(n_right.clip(_ROUNDING), n_wrong + 1, tail)
    high: bootstrap.FloatArray = betaincinv(n_right + 1, n_wrong.clip(_ROUNDING), 1 - tail)
    return np.minimum(low, value), np.maximum(high, value)


def _sup_t(rounds: bootstrap.FloatArray) -> float:
    """The 95 % quantile of the largest |deviation| in SDs, of all columns that vary."""
    deviations, sd = rounds[1:] - rounds[0], rounds[1:].std(axis=0)
    varies = sd > _ROUNDING
    if not varies.any():
        return 0.0
    return float(np.quantile((np.abs(deviations)[:, varies] / sd[varies]).max(axis=1), _LEVEL))


def _student_quantile(normal_quantile: float, degrees: int) -> float:
    """The quantile of Student's distribution with the same tail as this one of the normal."""
    from scipy.special import ndtr, stdtrit

    return float(-stdtrit(max(1, degrees), ndtr(-normal_quantile)))


def _rank_range(rounds: bootstrap.FloatArray, degrees: int) -> tuple[list[int], list[int]]:
    """The best and the worst rank that each label may have, at the level for all at once."""
    n = rounds.shape[1]
    is_better = np.zeros((n, n), np.bool_)
    first_index, second_index = np.triu_indices(n, 1)
    differences = rounds[:, first_index] - rounds[:, second_index]
    reach = _student_quantile(_sup_t(differences), degrees) * differences[1:].std(axis=0)
    certain = np.abs(differences[0]) > reach + _ROUNDING
    is_better[first_index, second_index] = certain & (differences[0] > 0)
    is_better[second_index, first_index] = certain & (differences[0] < 0)
    return (1 + is_better.sum(0)).tolist(), (n - is_better.sum(1)).tolist()


def classify_lives(
    shares: pl.DataFrame, labels: Sequence[str], *, known_share: float = HALF
) -> pl.DataFrame:
    """Classify each fact's course along the labels, in their order: one row per fact (LIVES).

    `shares` has one row per label and fact (label, relation_id, pair_id, share): the share of the
    fact's prompts that are answered rightly. A fact is learned at the first label from which its
    share exceeds `known_share` at two labels in a row. It is forgotten at the first later label
    from which its share is below `known_share` at two in a row, and can then be learned again. A
    share of exactly `known_share` counts for neither. `learned_at` and `forgotten_at` are the first
    of their kind; `is_known` says for each label whether the fact is learned and not forgotten.

    - always known: learned at the first label and never forgotten; never known: never learned;
    - learned: learned later and never forgotten;
    - forgotten: learned at the first label, and forgotten;
    - learned anew: known at the last label, after it was forgotten;
    - known for a while: learned later or again, and not known at the last label.

    Facts without a share at some label are left out; fewer than two labels give no row.
    """
    if len(labels) < 2:
        return LIVES.to_frame()
    order = pl.col("label").cast(pl.Enum(labels))
    rows = shares.filter(pl.col("label").is_in(labels)).drop_nulls("share").sort(*FACT, order)
    curves = rows.group_by(*FACT, maintain_order=True).agg("share")
    complete = curves.filter(pl.col("share").list.len() == len(labels))
    life_rows = [
        (*fact, *_classify(curve, labels, known_share), curve)
        for *fact, curve in complete.iter_rows()
    ]
    return pl.DataFrame(life_rows, schema=LIVES, orient="row")


def _classify(
    curve: Sequence[float], labels: Sequence[str], known_share: float
) -> tuple[str, str | None, str | None, list[bool]]:
    """The columns of LIVES from `life` to `is_known`."""
    turns: list[int] = []  # the places at which the fact is learned and forgotten, alternately
    for place, pair in enumerate(pairwise(curve)):
        is_known_here = len(turns) % 2 == 1
        if max(pair) < known_share if is_known_here else min(pair) > known_share:
            turns.append(place)
    learned_at, forgotten_at = [*(labels[turn] for turn in turns[:2]), None, None][:2]
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


def threshold_variant(known_share: float) -> str | None:
    """The part of a variant that names the threshold of knowledge; null for the default.

    >>> threshold_variant(0.5), threshold_variant(0.8)
    (None, 'known_share=0.8')
    """
    return None if known_share == HALF else f"known_share={known_share:g}"


def count_lives(lives: pl.DataFrame, by: str = "relation_id") -> pl.DataFrame:
    """Count facts by life, over all (null) and by relation, or another column.

    Columns: that column, life, n_pairs; lives without a fact have no row.
    """
    everything = lives.with_columns(pl.lit(None, lives.schema[by]).alias(by))
    counts = pl.concat([everything, lives]).group_by(by, "life")
    return counts.agg(n_pairs=pl.len().cast(pl.Int64)).sort(by, "life")
