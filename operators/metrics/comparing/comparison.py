"""The comparison of two runs: differences with intervals, tests, effect sizes, design effects."""

from typing import Any

import polars as pl

from factsweep.operators.metrics.belief import calibration
from factsweep.operators.metrics.comparing import paired_tests
from factsweep.operators.metrics.comparing.paired_preferences import METRICS as PREFERENCES
from factsweep.operators.metrics.comparing.pairing import Unit, in_both
from factsweep.operators.metrics.shared import bootstrap
from factsweep.operators.schemas import schema

COMPARISON = schema("""
    metric text, relation_id text, first float, second float, difference float, ci_low float,
    ci_high float, p float, p_holm float, effect_size float, design_effect float, n_pairs int,
    n_prompts int
""")
FACTS = schema("""
    metric text, relation_id text, n_pairs int, n_gained int, n_lost int, p_exact float, p_mid float
""")
# What is true or false of a fact; McNemar's test is for these.
OF_FACTS = ("coverage_oracle", "coverage_robust")
SHARES = (
    *("acc_at_1", "consist", "one_word_ratio", "coverage_maximum", *OF_FACTS),
    *(metric.name for metric in PREFERENCES),
)
# A run's best template is chosen on the same facts, so no test would keep its level.
_UNTESTED = "coverage_maximum"


def compare(paired: pl.DataFrame, *, seed: int, n_rounds: int = 1000) -> pl.DataFrame:
    """Compare two runs metric by metric, over all (relation_id null) and per relation: COMPARISON.

    `paired` has the columns PAIRED (module `paired_terms`). difference = second − first, with its
    95 % interval (module `bootstrap`: every round draws the same pairs for both runs). `p` is
    two-sided: `mcnemar` (mid-p) for OF_FACTS, none for `coverage_maximum`, and `sign_flip` over the
    pairs for the rest. `p_holm` is corrected within a family (`corrected`). `effect_size` is
    Cohen's h, of shares alone. `n_pairs` and `n_prompts` count what both runs have. Null:
    undefined, `n_prompts` where facts are paired.
    """
    found = []
    for rows in paired.partition_by("metric", maintain_order=True):
        change = rows.with_columns(numerator=pl.col("second") - pl.col("first"))
        intervals = bootstrap.bootstrap_ratio(change, seed=seed, n_rounds=n_rounds)
        found.append(_row(change, intervals.overall, None))
        for relation, part in bootstrap.relations(change):
            found.append(_row(part, intervals.by_relation[relation], relation))
    return _with_holm(found)


def compare_ranked(
    first: pl.DataFrame,
    second: pl.DataFrame,
    *,
    seed: int,
    n_rounds: int = 1000,
    n_bins: int = 10,
    unit: Unit = "prompt",
) -> pl.DataFrame:
    """Compare `ece` and `auroc` over everything: two rows of COMPARISON.

    They order the prompts and are no sums over pairs, so they have an interval but neither test nor
    design effect. Prompts with a confidence in both runs count, or all of the facts of both
    (`unit`). No interval where a pair has several (encoder models): rounds would resample prompts.
    """
    runs = [calibration.numbered(each) for each in in_both(first, second, unit)]
    several = any(each["pair_id"].is_duplicated().any() for each in runs)
    weights = [calibration.drawn_prompts(each, seed, 0 if several else n_rounds) for each in runs]
    drawn = zip(runs, weights, strict=True)
    first_rounds, second_rounds = (
        calibration.in_rounds(rows, each, n_bins) for rows, each in drawn
    )
    sizes = runs[0]["pair_id"].n_unique(), runs[0].height if unit == "prompt" else None
    found = []
    for metric, one in first_rounds.items():
        other = second_rounds[metric]
        before, after = (bootstrap.estimate(each[:1]).value for each in (one, other))
        change = bootstrap.estimate(other - one)
        row = {"metric": metric, "first": before, "second": after, **_interval(change)}
        found.append({**row, "n_pairs": sizes[0], "n_prompts": sizes[1]})
    return _with_holm(found)


def gained_and_lost(paired: pl.DataFrame) -> pl.DataFrame:
    """Count the facts that only one of two runs knows, over all and by relation: the table FACTS.

    Columns in: PAIRED. Known is a fact that is right under some prompt (`coverage_oracle`), or
    under enough of them (`coverage_robust`). The p-values are those of `mcnemar`, uncorrected.
    """
    facts = paired.filter(pl.col("metric").is_in(OF_FACTS))
    everything = facts.with_columns(relation_id=pl.lit(None, pl.String))
    change = pl.col("second") - pl.col("first")
    sums = {"n_pairs": pl.len(), "n_gained": (change > 0).sum(), "n_lost": (change < 0).sum()}
    counts = pl.concat([everything, facts]).group_by("metric", "relation_id").agg(**sums)
    ordered = counts.sort("metric", "relation_id")
    rows = [(*row, *paired_tests.mcnemar(*row[-2:])) for row in ordered.iter_rows()]
    return pl.DataFrame(rows, schema=FACTS, orient="row")


def corrected(comparison: pl.DataFrame) -> pl.DataFrame:
    """Correct the p-values of a comparison (columns: COMPARISON) again, for the rows that are kept.

    What is over all is one family, the relations of each metric are another. A metric that decides
    nothing would weaken the tests of the others: leave its rows out first.

    >>> rows = pl.DataFrame({"metric": ["acc_at_1", "consist"], "relation_id": [None, None],
    ...     "p": [0.03, 0.5]}, schema_overrides={"relation_id": pl.String})
    >>> corrected(rows)["p_holm"].to_list()
    [0.06, 0.5]
    >>> corrected(rows.filter(metric="acc_at_1"))["p_holm"].to_list()
    [0.03]
    """
    family = pl.when(pl.col("relation_id").is_not_null()).then(pl.col("metric"))
    return comparison.with_columns(p_holm=paired_tests.holm(pl.col("p")).over(family))


def _row(
    change: pl.DataFrame, interval: bootstrap.Estimate, relation: str | None
) -> dict[str, Any]:
    metric = change["metric"][0]
    first, second, total = change.select(pl.sum("first", "second", "denominator")).row(0)
    values = {"first": first / total, "second": second / total}
    return {
        "metric": metric,
        "relation_id": relation,
        **values,
        **_interval(interval),
        "p": _p_value(metric, change["numerator"].to_numpy()),
        "effect_size": paired_tests.cohens_h(**values) if metric in SHARES else None,
        "design_effect": paired_tests.design_effect(change),
        "n_pairs": change.height,
        "n_prompts": None if change["n_prompts"].has_nulls() else change["n_prompts"].sum(),
    }


def _interval(of: bootstrap.Estimate) -> dict[str, float | None]:
    return {"difference": of.value, "ci_low": of.ci_low, "ci_high": of.ci_high}


def _p_value(metric: str, changes: bootstrap.FloatArray) -> float | None:
    if metric == _UNTESTED:
        return None
    if metric in OF_FACTS:
        return paired_tests.mcnemar(int((changes > 0).sum()), int((changes < 0).sum())).mid_p
    return paired_tests.sign_flip(changes)


def _with_holm(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return corrected(pl.DataFrame(rows, schema=COMPARISON)).select(COMPARISON.names())
