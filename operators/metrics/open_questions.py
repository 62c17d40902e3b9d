"""Metrics of open questions: three states of an answer, exact match, token F1.

Source: the project's specification, *Open questions* (SimpleQA: Wei et al. 2024). The fact is the
unit of every interval: a fact's terms are means over its prompts.
"""

from collections.abc import Iterator, Mapping
from typing import Unpack

import polars as pl

from factsweep.operators.matching.verdicts import STATES
from factsweep.operators.metrics.shared.bootstrap import Draws, bootstrap_ratios
from factsweep.operators.metrics.shared.rows import (
    Counts,
    Metric,
    Row,
    count_answers,
    pair_terms,
    parts,
    table,
)

DEFAULT_GRADER = "contains"
CORRECT, INCORRECT, NOT_ATTEMPTED = STATES
_RULES = ("exact", DEFAULT_GRADER)  # the graders that always have a verdict

_STATES = (
    Metric("correct", "Correct", "share of answers that are right; 0 to 1", "higher"),
    Metric("incorrect", "Incorrect", "share of answers that are wrong; 0 to 1", "lower"),
    Metric("not_attempted", "Not attempted", "share of empty answers and refusals; 0 to 1"),
    Metric(
        "correct_given_attempted",
        "Correct given attempted",
        "share of right answers among those that are no refusal; 0 to 1",
        "higher",
    ),
    Metric(
        "f1_attempted",
        "F1",
        "harmonic mean of the shares of right answers among all, and among those attempted; 0 to 1",
        "higher",
    ),
    Metric(
        "index",
        "Index",
        "share of right answers minus that of wrong ones; −1 to 1",
        "higher",
        (-1, 1),
    ),
)
_TEXTS = (
    Metric("exact_match", "Exact match", "share of answers that equal a right one", "higher"),
    Metric("token_f1", "Token F1", "words shared with the nearest right answer; 0 to 1", "higher"),
)
VERDICTS = Metric(
    "verdicts", "Verdicts", "share of answers for which a judge gave one of its words", "higher"
)
METRICS = (*_STATES, VERDICTS, *_TEXTS)


def state_terms(graded: pl.DataFrame) -> Mapping[str, pl.DataFrame]:
    """The terms of the metrics of one grader's states, by metric.

    `graded` has relation_id, pair_id and state. F1 is 2C / (N + C + I), the harmonic mean of C/N
    and C/(C + I).

    >>> ids = {"relation_id": "r", "pair_id": ["a", "b", "c", "d"]}
    >>> states = ["correct", "correct", "incorrect", "not_attempted"]
    >>> terms = state_terms(pl.DataFrame(ids | {"state": states}))
    >>> {name: rows["numerator"].sum() / rows["denominator"].sum() for name, rows in terms.items()}
    {'correct': 0.5, 'incorrect': 0.25, 'not_attempted': 0.25, \
'correct_given_attempted': 0.6666666666666666, 'f1_attempted': 0.5714285714285714, 'index': 0.25}
    """
    right, wrong, none = ((pl.col("state") == state).mean() for state in STATES)
    expressions = {
        "correct": (right,),
        "incorrect": (wrong,),
        "not_attempted": (none,),
        "correct_given_attempted": (right, right + wrong),
        "f1_attempted": (2 * right, 1 + right + wrong),
        "index": (right - wrong,),
    }
    return {name: pair_terms(graded, *terms) for name, terms in expressions.items()}


def open_questions(
    graded: pl.DataFrame, details: pl.DataFrame, n_failed: pl.DataFrame, **draws: Unpack[Draws]
) -> pl.DataFrame:
    """The rows of all metrics (table ROWS), over everything, by relation and by part.

    `graded` has a row per grader and answer (table `graded`); `details` has pair_id, popularity,
    sample and answer_type. Answers that a judge has no verdict on are in no state, and counted as
    failed.
    """
    rows: list[Row] = []
    for (grader,), of_grader in graded.group_by("grader", maintain_order=True):
        variant = None if grader == DEFAULT_GRADER else f"grader={grader}"
        rows += state_rows(of_grader, n_failed, variant, **draws)
        rows += _part_rows(of_grader.drop_nulls("state"), details, variant, **draws)
    exact = graded.filter(grader="exact")
    is_exact = (pl.col("state") == CORRECT).mean()
    texts = {
        "exact_match": pair_terms(exact, is_exact),
        "token_f1": pair_terms(exact, pl.mean("token_f1")),
    }
    rows += _rows(texts, count_answers(exact, n_failed), None, **draws)
    return table(rows)


def state_rows(
    graded: pl.DataFrame, n_failed: pl.DataFrame, variant: str | None, **draws: Unpack[Draws]
) -> Iterator[Row]:
    """The rows of one grader's states, and of the answers without a verdict if there can be any."""
    judged = graded.drop_nulls("state")
    counts = count_answers(judged, add_missing(graded, "state", n_failed))
    yield from _rows(state_terms(judged), counts, variant, **draws)
    if not {*graded["grader"]} <= {*_RULES}:
        terms = {VERDICTS.name: pair_terms(graded, pl.col("state").is_not_null().mean())}
        yield from _rows(terms, count_answers(graded, n_failed), variant, **draws)


def add_missing(rows: pl.DataFrame, column: str, n_failed: pl.DataFrame) -> pl.DataFrame:
    """`n_failed` (relation_id, n_failed) with the rows that have no value in a column."""
    null_rows = rows.filter(pl.col(column).is_null()).group_by("relation_id", maintain_order=True)
    n_missing = null_rows.agg(n_failed=pl.len().cast(pl.Int64))
    return pl.concat([n_failed, n_missing])


def _rows(
    terms: Mapping[str, pl.DataFrame], counts: Counts, variant: str | None, **draws: Unpack[Draws]
) -> Iterator[Row]:
    for name, bootstrapped in bootstrap_ratios(terms, **draws).items():
        yield from counts.rows(name, bootstrapped, variant)


def _part_rows(
    graded: pl.DataFrame, details: pl.DataFrame, variant: str | None, **draws: Unpack[Draws]
) -> Iterator[Row]:
    """The rows by popularity decile, by sample of the set, and by the type of the answer."""
    types = details.select("pair_id", "answer_type")
    typed = graded.join(types, on="pair_id", how="left", maintain_order="left")
    for part, answers in parts(typed, details, answer_type="answer_type"):
        for name, bootstrapped in bootstrap_ratios(state_terms(answers), **draws).items():
            yield Row(variant, part, name, *bootstrapped.overall, answers.height, 0)
