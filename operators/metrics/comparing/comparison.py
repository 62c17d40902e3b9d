"""The comparison of two runs: differences with intervals, tests, effect sizes, design effects."""

from collections.abc import Collection
from itertools import product
from math import asin, erfc, sqrt
from typing import Any, NamedTuple, Unpack

import numpy as np
import polars as pl

from factsweep.operators.metrics.belief.calibration import ranked_rounds
from factsweep.operators.metrics.comparing.paired import PREFERENCES, Unit, in_both
from factsweep.operators.metrics.shared import bootstrap
from factsweep.operators.metrics.shared.bootstrap import FloatArray
from factsweep.operators.schemas import schema

COMPARISON = schema("""
    metric text, relation_id text, first float, second float, difference float, ci_low float,
    ci_high float, p float, p_holm float, effect_size float, design_effect float, n_pairs int,
    n_prompts int
""")
FACTS = schema("""
    metric text, relation_id text, n_pairs int, n_gained int, n_lost int, p_exact float, p_mid float
""")
# Metrics that are true or false of a fact, which McNemar's test is for.
OF_FACTS = ("coverage_oracle", "coverage_robust")
SHARES = (
    *("acc_at_1", "consist", "one_word_ratio", "coverage_maximum", *OF_FACTS),
    *(metric.name for metric in PREFERENCES),
)
# A run's best template is chosen on the same facts, so no test would keep its level.
_UNTESTED = "coverage_maximum"
# Up to so many changed facts, all 2^n signs are enumerated; beyond, the normal approximation is
# close.
_EXACT = 14
# The p-value that a test of a row is judged by.
P_JUDGED = pl.coalesce("p_holm", "p")
_TIE = 1e-9
_ROUNDING = 1e-12  # a variance of rounding errors alone


def compare(paired: pl.DataFrame, **draws: Unpack[bootstrap.Draws]) -> pl.DataFrame:
    """Compare two runs metric by metric, over all (relation_id null) and per relation: COMPARISON.

    `paired` has the columns PAIRED (module `paired`). difference = second − first, with its 95 %
    interval (module `bootstrap`: every round draws the same pairs for both runs). `p` is two-sided:
    `mcnemar` (mid-p) for OF_FACTS, none for `coverage_maximum`, and `sign_flip` over the pairs for
    the rest; `p_holm` is left to `adjust_p_values`. `effect_size` is Cohen's h, of shares alone.
    `n_pairs` and `n_prompts` count common pairs and prompts; `n_prompts` is null where facts are
    paired.
    """
    rows = []
    for paired_rows in paired.partition_by("metric", maintain_order=True):
        changes = paired_rows.with_columns(numerator=pl.col("second") - pl.col("first"))
        intervals = bootstrap.bootstrap_ratio(changes, **draws)
        rows.append(_compare_metric(changes, intervals.overall, None))
        for relation, relation_changes in bootstrap.relations(changes):
            interval = intervals.by_relation[relation]
            rows.append(_compare_metric(relation_changes, interval, relation))
    return pl.DataFrame(rows, schema=COMPARISON)


def compare_ranked(
    first: pl.DataFrame,
    second: pl.DataFrame,
    *,
    seed: int,
    n_rounds: int = 1000,
    n_bins: int = 10,
    unit: Unit = "prompt",
) -> pl.DataFrame:
    """Compare `ece` and RANKINGS over everything: one row of COMPARISON per metric.

    They order the prompts and are no sums over pairs, so they have an interval but neither test nor
    design effect. Prompts with a confidence in both runs count, or all of the facts of both
    (`unit`). No interval where a pair has several (encoder models): rounds would resample prompts.
    """
    runs = in_both(first, second, unit)
    several = any(run["pair_id"].is_duplicated().any() for run in runs)
    old, new = (ranked_rounds(run, seed, 0 if several else n_rounds, n_bins) for run in runs)
    n_prompts = runs[0].height if unit == "prompt" else None
    rows = []
    for metric, rounds in old.items():
        first_value, second_value = (bootstrap.estimate(run[metric][:1])[0] for run in (old, new))
        change = _difference(bootstrap.estimate(new[metric] - rounds))
        sizes = {"n_pairs": runs[0]["pair_id"].n_unique(), "n_prompts": n_prompts}
        values = {"first": first_value, "second": second_value}
        rows.append({"metric": metric, **values, **change, **sizes})
    return pl.DataFrame(rows, schema=COMPARISON)


def count_gained_and_lost(paired: pl.DataFrame) -> pl.DataFrame:
    """Count the facts that only one of two runs knows, over all and by relation: the table FACTS.

    Columns in: PAIRED. A known fact is right under some prompt (`coverage_oracle`), or under enough
    of them (`coverage_robust`). The p-values are those of `mcnemar`, uncorrected.
    """
    facts = paired.filter(pl.col("metric").is_in(OF_FACTS))
    everything = facts.with_columns(relation_id=pl.lit(None, pl.String))
    change = pl.col("second") - pl.col("first")
    sums = {"n_pairs": pl.len(), "n_gained": (change > 0).sum(), "n_lost": (change < 0).sum()}
    counts = pl.concat([everything, facts]).group_by("metric", "relation_id").agg(**sums)
    ordered = counts.sort("metric", "relation_id")
    rows = [(*row, *mcnemar(*row[-2:])) for row in ordered.iter_rows()]
    return pl.DataFrame(rows, schema=FACTS, orient="row")


def adjust_p_values(
    comparison: pl.DataFrame, main_metric: str, decides: Collection[str] = ()
) -> pl.DataFrame:
    """Fill `p_holm` of a comparison (columns: COMPARISON): null for the main metric over all.

    That p is not adjusted. The further metrics over all are a family of their own (`holm`), and
    those that decide a verdict (`decides`) another: metrics that decide nothing would weaken their
    tests. The relations of each metric are a family, too, and so is each other kind of confidence.

    >>> rows = pl.DataFrame({"metric": ["acc_at_1", "consist", "brier"], "relation_id": [None] * 3,
    ...     "p": [0.03, 0.02, 0.5]}, schema_overrides={"relation_id": pl.String})
    >>> adjust_p_values(rows, "acc_at_1")["p_holm"].to_list()
    [None, 0.04, 0.5]
    """
    metric, is_overall = pl.col("metric"), pl.col("relation_id").is_null()
    kind = metric.str.extract(" (confidence=.*)")
    family = pl.when(~is_overall).then(metric), is_overall & metric.is_in(list(decides)), kind
    is_main = is_overall & (metric == main_metric)
    p_holm = holm(pl.when(~is_main).then("p")).over(family)
    return comparison.with_columns(p_holm=p_holm)


def _compare_metric(
    changes: pl.DataFrame, interval: bootstrap.Estimate, relation: str | None
) -> dict[str, Any]:
    metric, numerators = changes["metric"][0], changes["numerator"].to_numpy()
    first, second, total = changes.select(pl.sum("first", "second", "denominator")).row(0)
    values = {"first": first / total, "second": second / total}
    p = None
    if metric in OF_FACTS:
        p = mcnemar(int((numerators > 0).sum()), int((numerators < 0).sum())).mid_p
    elif metric != _UNTESTED:
        p = sign_flip(numerators)
    return {
        "metric": metric,
        "relation_id": relation,
        **values,
        **_difference(interval),
        "p": p,
        "effect_size": cohens_h(**values) if metric in SHARES else None,
        "design_effect": design_effect(changes),
        "n_pairs": changes.height,
        "n_prompts": None if changes["n_prompts"].has_nulls() else changes["n_prompts"].sum(),
    }


def _difference(estimate: bootstrap.Estimate) -> dict[str, float | None]:
    return dict(zip(("difference", "ci_low", "ci_high"), estimate, strict=True))


class McNemar(NamedTuple):
    """Two-sided p-values of McNemar's test."""

    exact: float
    mid_p: float


def mcnemar(n_gained: int, n_lost: int) -> McNemar:
    """Test whether as many facts are gained as are lost (McNemar 1947).

    `exact` is the binomial test with probability 1/2; `mid_p` counts outcomes as likely as the
    observed one half, which keeps its level in practice and is less conservative (Fagerland,
    Lydersen and Laake 2013). Both are 1 where no fact changed.

    >>> mcnemar(5, 0)
    McNemar(exact=0.0625, mid_p=0.03125)
    """
    from scipy.special import bdtr  # scipy.stats takes a second to import

    n, fewer = n_gained + n_lost, min(n_gained, n_lost)
    below, up_to = bdtr(fewer - 1, n, 0.5) if fewer else 0.0, bdtr(fewer, n, 0.5)
    return McNemar(min(1.0, float(2 * up_to)), float(below + up_to))


def sign_flip(changes: FloatArray) -> float | None:
    """Test whether changes of facts (second − first) lie around 0: a two-sided mid-p-value.

    If the two runs are alike, each fact's change is as likely with the opposite sign (Fisher's
    randomisation test for pairs, 1935, section 21). The statistic is the sum of the changes; of
    changes of −1, 0 and 1 this is McNemar's test. Exact up to 14 changes that are not 0; beyond,
    the normal approximation with the same variance, Σ change². 1 where nothing changed; None
    without facts.

    >>> sign_flip(np.array([0.5, 0.25, 0.0]))
    0.25
    """
    if not changes.size:
        return None
    nonzero = changes[changes != 0]
    if not nonzero.size:
        return 1.0
    if nonzero.size > _EXACT:
        return erfc(abs(nonzero.sum()) / sqrt(2 * np.square(nonzero).sum()))
    signs = np.array(list(product((-1.0, 1.0), repeat=nonzero.size)))
    sums, observed = np.abs(signs @ nonzero), abs(nonzero.sum())
    tie = _TIE * np.abs(nonzero).sum()
    if observed <= tie:
        return 1.0
    beyond, tied = sums > observed + tie, np.abs(sums - observed) <= tie
    return float(beyond.mean() + tied.mean() / 2)


def holm(p: pl.Expr) -> pl.Expr:
    """Correct the p-values of one family of tests (Holm 1979); a null p stays null.

    The k-th smallest of m is multiplied by m − k + 1, and none is smaller than the one before it.

    >>> pl.DataFrame({"p": [0.01, None, 0.04, 0.03]}).select(holm(pl.col("p")))["p"].to_list()
    [0.03, None, 0.06, 0.06]
    """
    place = p.rank("ordinal").cast(pl.Int64)
    steps = (p * (p.count() - place + 1)).clip(upper_bound=1.0)
    return steps.sort_by(place, nulls_last=True).cum_max().gather(place - 1)


def cohens_h(first: float, second: float) -> float:
    """The distance of two shares, 2 asin √second − 2 asin √first (Cohen 1988, chapter 6).

    −π to π; Cohen calls .2 small, .5 medium and .8 large.

    >>> round(cohens_h(0.5, 0.75), 4)
    0.5236
    """
    # Means of shares can pass 0 or 1 by a rounding error.
    first_angle, second_angle = (
        2 * asin(sqrt(min(max(share, 0.0), 1.0))) for share in (first, second)
    )
    return second_angle - first_angle


def design_effect(changes: pl.DataFrame) -> float | None:
    """Divide the variance of a difference by its variance if each prompt had its own fact.

    n_prompts / design effect is the number of independent prompts that would measure as sharply:
    250 prompts of a fact say less than 250 facts would. Below 1 where relations differ more than
    the facts in them do.

    `changes` has one row per pair: relation_id, numerator (its change, times its denominator),
    denominator, squares (its denominator × the mean of its prompts' squared changes) and n_prompts.
    With δ = Σ numerator / Σ denominator and z = (numerator − δ · denominator) / Σ denominator,

        clustered    Σ over relations of  n / (n − 1) · Σ (z − mean z)²,  n the relation's pairs
        independent  (Σ squares / Σ denominator − δ²) / (number of prompts − 1)

    None: no mean over prompts, no relation has two pairs, or all prompts change alike.

    Source: Kish 1965, section 8.2; linearised for ratios as in Cochran 1977, section 6.3. Miller
    2024 ("Adding error bars to evals") does so for evaluations of language models.
    """
    total, n_prompts = changes.select(pl.sum("denominator", "n_prompts")).row(0)
    if not total or changes["squares"].has_nulls():
        return None
    difference = changes["numerator"].sum() / total
    residual = (pl.col("numerator") - difference * pl.col("denominator")) / total
    # `var` divides by n − 1, and is null for a relation of a single pair.
    by_relation = changes.group_by("relation_id").agg(z=residual.var() * pl.len())
    variances = by_relation.sort("relation_id")["z"].drop_nulls()
    variance = changes["squares"].sum() / total - difference**2
    if variances.is_empty() or variance < _ROUNDING:
        return None
    return float(variances.sum() / (variance / (n_prompts - 1)))
