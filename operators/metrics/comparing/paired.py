"""Two runs side by side, prompt by prompt or fact by fact: the terms of each pair in each metric.

Terms can be computed relation by relation and concatenated.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import product
from typing import Literal, NamedTuple, Self, get_args

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.metrics.belief import belief
from factsweep.operators.metrics.belief.answers import By, consist_terms, coverage_maximum_terms
from factsweep.operators.metrics.distractors import distractors
from factsweep.operators.metrics.distractors.distractors import (
    AGGREGATIONS,
    knowledge,
    numbers,
    with_n,
)
from factsweep.operators.metrics.shared.rows import Metric
from factsweep.operators.schemas import schema
from factsweep.operators.wording import count

# The unit of pairing: a prompt of both runs, or a fact with all its prompts in each run.
Unit = Literal["prompt", "fact"]
FACT = ("relation_id", "pair_id")
COVERAGE_ROBUST = Metric("coverage_robust", heading="robust", better="higher")
METRICS = (*belief.METRICS, COVERAGE_ROBUST)
PREFERENCES = tuple(
    metric for metric in distractors.METRICS if metric.name.startswith(("min_at_", "avg_at_"))
)
PAIRED = schema("""
    metric text, relation_id text, pair_id text, first float, second float, denominator float,
    squares float,  -- denominator × the mean over the pair's prompts of change²; null where a
                    -- metric is not a mean over prompts, or prompts are not paired
    n_prompts int   -- those that both runs have; null where facts are paired
""")
_SECOND = "_second"
_ONE, _NONE = pl.lit(1), pl.lit(None)
_RIGHT = pl.col("correct").cast(pl.Float64)


class SharedCounts(NamedTuple):
    """How much two runs share, and what only the first or only the second has.

    `own` and `other` count the prompts of the first and the second run on the facts of both.
    """

    prompts: int
    facts: int
    own: int
    other: int
    first_prompts: int
    second_prompts: int
    first_facts: int
    second_facts: int

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """All relations together."""
        return cls(*map(sum, zip((0,) * len(cls._fields), *parts, strict=True)))

    def left_out(self, unit: Unit) -> str:
        """What only the first and only the second has, for a narrow column.

        >>> SharedCounts(72, 13, 72, 90, 0, 18, 0, 2).left_out("prompt")
        '0 and 18 prompts'
        """
        return "{:,} and {:,} {}s".format(*self._count_unpaired(unit), unit)

    def _count_unpaired(self, unit: Unit) -> tuple[int, int]:
        prompts, facts = self[4:6], self[6:8]
        return prompts if unit == "prompt" else facts

    def sentence(self, unit: Unit) -> str:
        """The paired and the unpaired prompts or facts, in words.

        >>> SharedCounts(72, 13, 72, 90, 0, 18, 0, 2).sentence("prompt")
        '72 prompts of 13 facts, paired by fact, template and name; not paired: 0 prompts of the \
first, 18 of the second'
        >>> SharedCounts(0, 13, 72, 36, 72, 38, 0, 1).sentence("fact")
        '13 facts, paired by fact, with 72 prompts in the first and 36 in the second; not paired: \
0 facts of the first, 1 of the second'
        """
        paired = f"{count(self.facts, 'fact')}, paired by fact"
        if unit == "prompt":
            paired = f"{count(self.prompts, 'prompt')} of {paired}, template and name"
        else:
            n_first = count(self.own, "prompt")
            paired = f"{paired}, with {n_first} in the first and {self.other:,} in the second"
        first, second = self._count_unpaired(unit)
        only_first = count(first, unit)
        return f"{paired}; not paired: {only_first} of the first, {second:,} of the second"


def count_shared(first: pl.DataFrame, second: pl.DataFrame) -> SharedCounts:
    """Count the prompts and facts of both runs; both need prompt_id, relation_id and pair_id."""
    n_prompts = first.join(second, on="prompt_id", how="semi").height
    first_facts, second_facts = (run.select(FACT) for run in in_both(first, second, "fact"))
    n_facts = first_facts.n_unique()
    unpaired = (
        *(run.height - n_prompts for run in (first, second)),
        *(run.select(FACT).n_unique() - n_facts for run in (first, second)),
    )
    return SharedCounts(n_prompts, n_facts, first_facts.height, second_facts.height, *unpaired)


def in_both(
    first: pl.DataFrame, second: pl.DataFrame, unit: Unit
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of each run that count: of the prompts of both, or of the facts of both (`unit`)."""
    on = ("prompt_id",) if unit == "prompt" else FACT
    first, second = (run.with_columns(pl.col(on).cast(pl.String)) for run in (first, second))
    return first.join(second, on=on, how="semi"), second.join(first, on=on, how="semi")


def unit_between(
    parts: Iterable[tuple[pl.DataFrame, pl.DataFrame]], *, templates_alone: bool
) -> Unit:
    """Prompts, if two runs have any in common; relations are read until a common prompt is found.

    `templates_alone`: the runs differ in nothing but which templates are asked. Prompts of common
    templates, and their answers, are then identical, so facts are paired.
    """
    has_common = not templates_alone and any(count_shared(*runs).prompts for runs in parts)
    return "prompt" if has_common else "fact"


def unit_of(first: pl.DataFrame, second: pl.DataFrame) -> Unit:
    """Prompts, unless some fact of both runs was asked by other prompts in each.

    A seed, a style or a choice of templates decides by which prompt a fact is sampled: pairing by
    prompts would lose such facts. Both tables need prompt_id, relation_id and pair_id.
    """
    prompts, facts = (in_both(first, second, unit)[0].select(FACT) for unit in get_args(Unit))
    return "prompt" if prompts.n_unique() == facts.n_unique() else "fact"


def matched_terms(
    first: Mapping[str, pl.DataFrame],
    second: Mapping[str, pl.DataFrame],
    unit: Unit,
    robust_share: float,
    *,
    by: By = "match",
) -> pl.DataFrame:
    """The terms of the answers, and of the confidences where both runs have any (columns: PAIRED).

    Both need the tables `answers` and `calibration`, by name.
    """
    answers = first["answers"], second["answers"]
    terms = paired_terms(*answers, robust_share=robust_share, by=by, unit=unit)
    sampled = first["calibration"], second["calibration"]
    if any(rows.is_empty() for rows in sampled):
        return terms
    return pl.concat([terms, paired_calibration_terms(*sampled, unit=unit_of(*sampled))])


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
    prompts answered in both runs count; where facts are paired (`unit`), each run has all its
    prompts of the facts of both. A metric's value in a run is the sum of its terms (`first`,
    `second`) over the sum of `denominator`. `coverage_robust` is the share of pairs that are right
    under at least `robust_share` of their prompts; `coverage_maximum` uses each run's own best
    template. Where facts are paired, each counts once in `one_word_ratio`, however many prompts it
    has.

    Raises:
        InputError: a run has a prompt twice.
    """
    one_word, (total, n) = (pl.col("n_lemmas") == 1).cast(pl.Float64), _sum_over(unit)
    columns = ("template_id", "key", "correct")
    runs = _select_both(first, second, unit, *columns, right=_RIGHT, one_word=one_word)
    values = {
        "share": pl.mean("right"),
        "known": pl.col("correct").any(),
        "robust": pl.mean("right") >= robust_share,
        "n_one_word": total("one_word"),
    }
    facts = _by_fact(runs, unit, values, ("right", "one_word"))
    consist = (consist_terms(run, by=by) for run in runs)
    best_template = map(coverage_maximum_terms, runs)
    terms = [
        _terms(facts, "acc_at_1", "share", squares=pl.col("right_changes") / pl.col("n_prompts")),
        _terms(facts, "one_word_ratio", "n_one_word", n, squares=pl.col("one_word_changes")),
        _terms(_join_terms(facts, *consist), "consist", "numerator"),
        _terms(facts, "coverage_oracle", "known"),
        _terms(facts, "coverage_robust", "robust"),
        _terms(_join_terms(facts, *best_template), "coverage_maximum", "numerator"),
    ]
    return pl.concat(terms)


def paired_grades(first: pl.DataFrame, second: pl.DataFrame, *, unit: Unit) -> pl.DataFrame:
    """Give each pair's share of right answers in both runs, by each grader of both (PAIRED).

    Both tables are `graded`. The metric is `correct grader=…`; answers without a verdict are left
    out.
    """
    terms, right = [PAIRED.to_frame()], (pl.col("state") == "correct").cast(pl.Float64)
    for grader in first["grader"].unique(maintain_order=True):
        rows, other_rows = (
            run.filter(grader=grader).drop_nulls("state") for run in (first, second)
        )
        runs = _select_both(rows, other_rows, unit, right=right)
        facts = _by_fact(runs, unit, {"share": pl.mean("right")}, ("right",))
        squares = pl.col("right_changes") / pl.col("n_prompts")
        terms.append(_terms(facts, f"correct grader={grader}", "share", squares=squares))
    return pl.concat(terms)


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
    gap, (total, n) = pl.col("confidence") - _RIGHT, _sum_over(unit)
    runs = _select_both(first, second, unit, ovconf=gap, brier=gap**2)
    values = {name: total(name) for name in ("ovconf", "brier")}
    facts = _by_fact(runs, unit, values, tuple(values))
    changes = {name: pl.col(f"{name}_changes") for name in values}
    return pl.concat(_terms(facts, name, name, n, squares=changes[name]) for name in values)


def _select_both(
    first: pl.DataFrame, second: pl.DataFrame, unit: Unit, *columns: str, **values: pl.Expr
) -> tuple[pl.DataFrame, pl.DataFrame]:
    for name, run in (("first", first), ("second", second)):
        if run["prompt_id"].is_duplicated().any():
            raise InputError(f"the {name} run has a prompt_id twice; give one answer per prompt.")
    first, second = (run.select("prompt_id", *FACT, *columns, **values) for run in (first, second))
    return in_both(first, second, unit)


def _sum_over(unit: Unit) -> tuple[Callable[[str], pl.Expr], pl.Expr]:
    """A fact's term in a mean over prompts, or over facts where these are paired; its weight."""
    return (pl.sum, pl.col("n_prompts")) if unit == "prompt" else (pl.mean, _ONE)


def _by_fact(
    runs: tuple[pl.DataFrame, pl.DataFrame],
    unit: Unit,
    values: Mapping[str, pl.Expr],
    changing: Collection[str],
) -> pl.DataFrame:
    """Aggregate each fact's prompts in each run, and their changes between the two.

    `…_changes` has the sum of squared changes of each column `changing`; null if facts are paired.
    """
    facts = _join_facts(runs, values)
    changes = {
        f"{name}_changes": ((pl.col(f"{name}{_SECOND}") - pl.col(name)) ** 2).sum()
        for name in changing
    }
    if unit == "fact":
        return facts.with_columns(**dict.fromkeys(("n_prompts", *changes), _NONE))
    joined = runs[0].join(runs[1], on="prompt_id", suffix=_SECOND)
    fact_changes = joined.group_by(pl.col(FACT).cast(pl.String)).agg(n_prompts=pl.len(), **changes)
    return facts.join(fact_changes.sort(FACT), on=FACT, maintain_order="left")


def _join_facts(runs: Iterable[pl.DataFrame], values: Mapping[str, pl.Expr]) -> pl.DataFrame:
    first, second = (run.group_by(pl.col(FACT).cast(pl.String)).agg(**values) for run in runs)
    return first.sort(FACT).join(second, on=FACT, suffix=_SECOND, maintain_order="left")


def _join_terms(facts: pl.DataFrame, first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """The facts that both tables of terms have, with the columns of both."""
    joined = first.join(second, on=FACT, suffix=_SECOND)
    return facts.select(*FACT, "n_prompts").join(joined, on=FACT, maintain_order="left")


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


def paired_preferences(
    first: pl.DataFrame, second: pl.DataFrame, *, unit: Unit = "prompt"
) -> pl.DataFrame:
    """Give each fact's Min@n and Avg@n in both runs (columns: PAIRED).

    Both tables are `preferred`. A fact counts for each n for which it has n distractors after all
    its clozes in both runs; with the unit `prompt`, only clozes answered in both runs. Each run has
    its own distractors: where a model finds them (`optimal`), they differ.

    Raises:
        InputError: a run has a prompt twice.
    """
    columns = ("n_distractors", "n_beaten")
    runs = _select_both(first, second, unit, *columns)
    terms = [PAIRED.to_frame()]
    values, second_values = pl.col("values"), pl.col("values_second")
    changes = (second_values - values).list.eval(pl.element() ** 2).list.mean()
    squares, n_prompts = (changes, values.list.len()) if unit == "prompt" else (_NONE, _NONE)
    means = {"mean": values.list.mean(), "mean_second": second_values.list.mean()}
    for n, aggregation in product(numbers(runs[0]), AGGREGATIONS):
        if n not in numbers(runs[1]):
            continue
        # K after each cloze of each fact that has n distractors, in the order of the clozes.
        in_order = {"values": knowledge(aggregation, n).sort_by("prompt_id")}
        facts = _join_facts((with_n(run, n) for run in runs), in_order)
        facts = facts.with_columns(**means, n_prompts=n_prompts)
        terms.append(_terms(facts, f"{aggregation}_at_{n}", "mean", squares=squares))
    return pl.concat(terms)


def mark_known(preferred: pl.DataFrame) -> pl.DataFrame:
    """Whether the right answer beats every distractor, after each cloze that has any: `correct`."""
    compared = preferred.filter(pl.col("n_distractors") > 0)
    return compared.with_columns(correct=pl.col("n_beaten").list.last() == pl.col("n_distractors"))
