"""Two runs set side by side, prompt by prompt: what each pair adds to each metric in both.

Every table here can be made relation by relation and put together (`pl.concat`): memory then
holds the answers of one relation.
"""

import polars as pl

from operators.errors import InputError
from operators.metrics.belief import belief
from operators.metrics.belief.consist import By, consist_terms
from operators.metrics.belief.coverage import template_hits
from operators.metrics.estimates.metric import Metric

COVERAGE_ROBUST = Metric("coverage_robust", heading="robust", better="higher")
METRICS = (*belief.METRICS, COVERAGE_ROBUST)
PAIRED = pl.Schema(
    {
        "metric": pl.String,
        "relation_id": pl.String,
        "pair_id": pl.String,
        "first": pl.Float64,
        "second": pl.Float64,
        "denominator": pl.Float64,
        # The denominator × the mean over the pair's prompts of change²; null where a metric is not
        # a mean over prompts.
        "squares": pl.Float64,
        "n_prompts": pl.Int64,
    }
)
_FACT = ("relation_id", "pair_id")
_SECOND = "_second"
_RUNS = ("", _SECOND)
_ONE, _NONE = pl.lit(1), pl.lit(None)


def paired_terms(
    first: pl.DataFrame, second: pl.DataFrame, *, robust_share: float, by: By = "match"
) -> pl.DataFrame:
    r"""Give each pair's terms of the metrics of answers in both runs (columns: PAIRED).

    Both tables need prompt_id, relation_id, pair_id, template_id, key, n_lemmas and correct. Only
    prompts that both runs have an answer to count. A metric's value in a run is the sum of its
    terms (`first`, `second`) over the sum of `denominator`: `acc_at_1`, `consist`,
    `one_word_ratio`, `coverage_oracle`, `coverage_maximum`, as in their own modules, and
    `coverage_robust`, the share of pairs that are right under at least `robust_share` of their
    prompts. `coverage_maximum` holds each run's own best template.

    Raises:
        InputError: a prompt stands twice in a run.

    >>> prompts = {"prompt_id": ["p", "q"], "relation_id": ["P1"] * 2, "pair_id": ["t"] * 2,
    ...     "template_id": ["a", "b"], "key": ["\x1frome\x1f"] * 2, "n_lemmas": [1, 1]}
    >>> first = pl.DataFrame({**prompts, "correct": [True, False]})
    >>> second = pl.DataFrame({**prompts, "correct": [True, True]})
    >>> terms = paired_terms(first, second, robust_share=0.9)
    >>> terms.select("metric", "first", "second").rows()[:3]
    [('acc_at_1', 0.5, 1.0), ('one_word_ratio', 2.0, 2.0), ('consist', 1.0, 1.0)]
    """
    both = _joined(
        first.select("prompt_id", *_FACT, "template_id", "key", "n_lemmas", "correct"),
        second.select("prompt_id", "key", "n_lemmas", "correct"),
    )
    facts, n = _answer_sums(both, robust_share), pl.col("n_prompts")
    consist = (consist_terms(each, by=by) for each in _sides(both))
    best = (_best_hits(each) for each in _sides(both))
    found = [
        _terms(facts, "acc_at_1", "share", squares=pl.col("n_turned") / n),
        _terms(facts, "one_word_ratio", "n_one_word", n, squares=pl.col("n_reworded")),
        _terms(_side_by_side(facts, *consist), "consist", "numerator"),
        _terms(facts, "coverage_oracle", "known"),
        _terms(facts, "coverage_robust", "robust"),
        _terms(_side_by_side(facts, *best), "coverage_maximum", "hit"),
    ]
    return pl.concat(found)


def paired_calibration_terms(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """Give each pair's terms of `ovconf` and `brier` in both runs (columns: PAIRED).

    Both tables need prompt_id, relation_id, pair_id, confidence and correct. Only prompts with a
    confidence in both runs count.

    >>> prompt = {"prompt_id": ["p"], "relation_id": ["P1"], "pair_id": ["t"], "correct": [True]}
    >>> first, second = (pl.DataFrame({**prompt, "confidence": [each]}) for each in (0.5, 1.0))
    >>> paired_calibration_terms(first, second).select("metric", "first", "second").rows()
    [('ovconf', -0.5, 0.0), ('brier', 0.25, 0.0)]
    """
    columns = ("prompt_id", "confidence", "correct")
    both = _joined(first.select(*_FACT, *columns), second.select(columns))
    before, after = (
        pl.col(f"confidence{run}") - pl.col(f"correct{run}").cast(pl.Float64) for run in _RUNS
    )
    facts = _by_fact(
        both,
        n_prompts=pl.len(),
        gap=before.sum(),
        gap_second=after.sum(),
        gap_change=((after - before) ** 2).sum(),
        squared=(before**2).sum(),
        squared_second=(after**2).sum(),
        squared_change=((after**2 - before**2) ** 2).sum(),
    )
    n = pl.col("n_prompts")
    found = [
        _terms(facts, "ovconf", "gap", n, squares=pl.col("gap_change")),
        _terms(facts, "brier", "squared", n, squares=pl.col("squared_change")),
    ]
    return pl.concat(found)


def _joined(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """The prompts of both runs, the second's columns with a suffix."""
    for name, run in {"first": first, "second": second}.items():
        if run["prompt_id"].is_duplicated().any():
            raise InputError(f"the {name} run has a prompt_id twice; give one answer per prompt.")
    return first.join(second, on="prompt_id", suffix=_SECOND)


def _by_fact(both: pl.DataFrame, **values: pl.Expr) -> pl.DataFrame:
    return both.group_by(pl.col(_FACT).cast(pl.String)).agg(**values).sort(_FACT)


def _answer_sums(both: pl.DataFrame, robust_share: float) -> pl.DataFrame:
    """What each fact's prompts say together, and how many differ in the second run."""
    right = [pl.col(f"correct{run}") for run in _RUNS]
    one_word = [pl.col(f"n_lemmas{run}") == 1 for run in _RUNS]
    values = {
        "n_turned": (right[0] != right[1]).sum(),
        "n_reworded": (one_word[0] != one_word[1]).sum(),
    }
    for run, correct, single in zip(_RUNS, right, one_word, strict=True):
        values |= {
            f"share{run}": correct.mean(),
            f"known{run}": correct.any(),
            f"robust{run}": correct.mean() >= robust_share,
            f"n_one_word{run}": single.sum(),
        }
    return _by_fact(both, n_prompts=pl.len(), **values)


def _sides(both: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The two runs, each under its own column names again."""
    names = [name for name in both.columns if name.endswith(_SECOND)]
    own = {name: name.removesuffix(_SECOND) for name in names}
    return both.drop(names), both.drop(own.values()).rename(own)


def _side_by_side(facts: pl.DataFrame, first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """The facts that both tables have, with the columns of both."""
    both = first.join(second, on=_FACT, suffix=_SECOND)
    return facts.select(*_FACT, "n_prompts").join(both, on=_FACT, maintain_order="left")


def _best_hits(answers: pl.DataFrame) -> pl.DataFrame:
    """Say of each pair whether it is right under its relation's best template: `hit`.

    Of equally good templates it is the first by its id, as in the bootstrap of coverage_maximum.
    """
    hits = template_hits(answers)
    templates = hits.group_by("relation_id", "template_id").agg(n=pl.sum("hit"))
    ranked = templates.sort("relation_id", "n", "template_id", descending=[False, True, False])
    best = ranked.unique("relation_id", keep="first", maintain_order=True).drop("n")
    hit = hits.join(best, on=("relation_id", "template_id"))
    pairs = hits.select(_FACT).unique(maintain_order=True)
    found = pairs.join(hit, on=_FACT, how="left", maintain_order="left")
    return found.select(*_FACT, pl.col("hit").fill_null(False))


def _terms(
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
