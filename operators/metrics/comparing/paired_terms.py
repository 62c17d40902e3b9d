"""Two runs set side by side, prompt by prompt or fact by fact: what each pair adds to each metric.

Every table here can be made relation by relation and put together (`pl.concat`): memory then
holds the answers of one relation.
"""

from collections.abc import Collection, Mapping

import polars as pl

from factsweep.operators.metrics.belief import belief
from factsweep.operators.metrics.belief.consist import By, consist_terms
from factsweep.operators.metrics.belief.coverage import coverage_maximum_terms
from factsweep.operators.metrics.comparing.pairing import FACT, Unit, check_prompts, in_both
from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.schemas import schema

COVERAGE_ROBUST = Metric("coverage_robust", heading="robust", better="higher")
METRICS = (*belief.METRICS, COVERAGE_ROBUST)
PAIRED = schema("""
    metric text, relation_id text, pair_id text, first float, second float, denominator float,
    squares float,  -- denominator × the mean over the pair's prompts of change²; null where a
                    -- metric is not a mean over prompts, or prompts are not paired
    n_prompts int   -- those that both runs have; null where facts are paired
""")
_SECOND = "_second"
_ONE, _NONE = pl.lit(1), pl.lit(None)
_RIGHT = pl.col("correct").cast(pl.Float64)


def paired_terms(
    first: pl.DataFrame,
    second: pl.DataFrame,
    *,
    robust_share: float,
    by: By = "match",
    unit: Unit = "prompt",
) -> pl.DataFrame:
    r"""Give each pair's terms of the metrics of answers in both runs (columns: PAIRED).

    Both tables need prompt_id, relation_id, pair_id, template_id, key, n_lemmas and correct. Only
    prompts that both runs have an answer to count; where facts are paired (`unit`), each run has
    all its prompts of the facts of both. A metric's value in a run is the sum of its
    terms (`first`, `second`) over the sum of `denominator`: `acc_at_1`, `consist`,
    `one_word_ratio`, `coverage_oracle`, `coverage_maximum`, as in their own modules, and
    `coverage_robust`, the share of pairs that are right under at least `robust_share` of their
    prompts. `coverage_maximum` holds each run's own best template. Where facts are paired, each
    counts once in `one_word_ratio`, however many prompts it has.

    Raises:
        InputError: a prompt stands twice in a run.
    """
    one_word = (pl.col("n_lemmas") == 1).cast(pl.Float64)
    columns = ("template_id", "key", "correct")
    runs = _runs(first, second, unit, *columns, right=_RIGHT, one_word=one_word)
    values = {
        "share": pl.mean("right"),
        "known": pl.col("correct").any(),
        "robust": pl.mean("right") >= robust_share,
        "n_one_word": _summed("one_word", unit),
    }
    facts, n = _by_fact(runs, unit, values, ("right", "one_word")), _weight(unit)
    consist = (consist_terms(each, by=by) for each in runs)
    best = map(coverage_maximum_terms, runs)
    found = [
        terms(facts, "acc_at_1", "share", squares=pl.col("right_changes") / pl.col("n_prompts")),
        terms(facts, "one_word_ratio", "n_one_word", n, squares=pl.col("one_word_changes")),
        terms(_side_by_side(facts, *consist), "consist", "numerator"),
        terms(facts, "coverage_oracle", "known"),
        terms(facts, "coverage_robust", "robust"),
        terms(_side_by_side(facts, *best), "coverage_maximum", "numerator"),
    ]
    return pl.concat(found)


def paired_calibration_terms(
    first: pl.DataFrame, second: pl.DataFrame, *, unit: Unit = "prompt"
) -> pl.DataFrame:
    """Give each pair's terms of `ovconf` and `brier` in both runs (columns: PAIRED).

    Both tables need prompt_id, relation_id, pair_id, confidence and correct. Only prompts with a
    confidence in both runs count; where facts are paired (`unit`), the means over each run's own.

    >>> prompt = {"prompt_id": ["p"], "relation_id": ["P1"], "pair_id": ["t"], "correct": [True]}
    >>> first, second = (pl.DataFrame({**prompt, "confidence": [each]}) for each in (0.5, 1.0))
    >>> paired_calibration_terms(first, second).select("metric", "first", "second").rows()
    [('ovconf', -0.5, 0.0), ('brier', 0.25, 0.0)]
    """
    gap = pl.col("confidence") - _RIGHT
    runs = _runs(first, second, unit, gap=gap, squared=gap**2)
    values = {"ovconf": _summed("gap", unit), "brier": _summed("squared", unit)}
    facts, n = _by_fact(runs, unit, values, ("gap", "squared")), _weight(unit)
    ovconf = terms(facts, "ovconf", "ovconf", n, squares=pl.col("gap_changes"))
    return pl.concat([ovconf, terms(facts, "brier", "brier", n, squares=pl.col("squared_changes"))])


def _runs(
    first: pl.DataFrame, second: pl.DataFrame, unit: Unit, *columns: str, **values: pl.Expr
) -> tuple[pl.DataFrame, pl.DataFrame]:
    check_prompts(first, second)
    one, other = (each.select("prompt_id", *FACT, *columns, **values) for each in (first, second))
    return in_both(one, other, unit)


def _summed(name: str, unit: Unit) -> pl.Expr:
    """What a fact adds to a mean over prompts; over facts, where these are paired."""
    return pl.sum(name) if unit == "prompt" else pl.mean(name)


def _weight(unit: Unit) -> pl.Expr:
    return pl.col("n_prompts") if unit == "prompt" else _ONE


def _by_fact(
    runs: tuple[pl.DataFrame, pl.DataFrame],
    unit: Unit,
    values: Mapping[str, pl.Expr],
    changing: Collection[str],
) -> pl.DataFrame:
    """What each fact's prompts say in each run, and how far they change between the two.

    `…_changes` has the sum of squared changes of each column `changing`; null if facts are paired.
    """
    one, other = (_grouped(side, values) for side in runs)
    facts = one.join(other, on=FACT, suffix=_SECOND, maintain_order="left")
    changes = {
        f"{name}_changes": ((pl.col(f"{name}{_SECOND}") - pl.col(name)) ** 2).sum()
        for name in changing
    }
    if unit == "fact":
        return facts.with_columns(**dict.fromkeys(("n_prompts", *changes), _NONE))
    joined = runs[0].join(runs[1], on="prompt_id", suffix=_SECOND)
    changed = _grouped(joined, {"n_prompts": pl.len(), **changes})
    return facts.join(changed, on=FACT, maintain_order="left")


def _grouped(rows: pl.DataFrame, values: Mapping[str, pl.Expr]) -> pl.DataFrame:
    return rows.group_by(pl.col(FACT).cast(pl.String)).agg(**values).sort(FACT)


def _side_by_side(facts: pl.DataFrame, first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """The facts that both tables have, with the columns of both."""
    both = first.join(second, on=FACT, suffix=_SECOND)
    return facts.select(*FACT, "n_prompts").join(both, on=FACT, maintain_order="left")


def terms(
    facts: pl.DataFrame,
    metric: str,
    term: str,
    denominator: pl.Expr = _ONE,
    *,
    squares: pl.Expr = _NONE,
) -> pl.DataFrame:
    """One metric's rows; `term` names its column in the first run."""
    rows = facts.with_columns(
        metric=pl.lit(metric),
        first=pl.col(term),
        second=pl.col(f"{term}{_SECOND}"),
        denominator=denominator,
        squares=squares,
    )
    return rows.select(pl.col(name).cast(dtype) for name, dtype in PAIRED.items())
