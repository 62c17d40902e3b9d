"""Subject against template: which of the two wordings of a fact moves a model more."""

import polars as pl

from factsweep.operators.metrics.belief.consist import By, consist_terms
from factsweep.operators.metrics.belief.template_spread import spread_sums
from factsweep.operators.metrics.shared.rows import counted, plain_rows, ratio_rows, table
from factsweep.operators.metrics.shared.terms import pair_terms

_NAME = ("relation_id", "pair_id", "subject_index")


def subject_template(
    answers: pl.DataFrame,
    n_failed: pl.DataFrame | None = None,
    *,
    by: By = "match",
    seed: int,
    n_rounds: int = 1000,
) -> pl.DataFrame:
    r"""Vary one factor and keep the other: rows of the table ROWS, over all and per relation.

    - `subject_consist`: Consist among the prompts of a pair that have the same template and
      differ in the name; `template_consist`: the same name, another template.
    - `subject_acc_min`, `subject_acc_max`: the lowest and the highest Acc@1 of all subsets of the
      prompts that hold one name per pair (under all templates); `template_acc_min`,
      `template_acc_max`: of those that hold one template per relation (with all names).

    Subsets are independent from pair to pair (relation to relation), so the extremes are reached
    by taking each one's worst or best. Needs the columns relation_id, pair_id, template_id,
    subject_index, key and correct; `by` as in `consist`, `n_failed` as in `belief`. The Consist
    rows have intervals.

    Source: BELIEF, appendix C.3, Table 12 (2025: Table 13). Its template columns equal those of
    Table 11, which shows that the extremes are taken this way.

    >>> answers = pl.DataFrame({
    ...     "relation_id": ["P1"] * 4, "pair_id": ["t"] * 4, "template_id": ["a", "a", "b", "b"],
    ...     "subject_index": [0, 1, 0, 1], "correct": [True, True, False, True],
    ...     "key": ["\x1frome\x1f", "\x1frome\x1f", "\x1foslo\x1f", "\x1frome\x1f"],
    ... })
    >>> rows = subject_template(answers, seed=1, n_rounds=10).filter(pl.col("slice").is_null())
    >>> for row in rows.select("metric", "value").rows():
    ...     print(*row)
    subject_consist 0.5
    template_consist 0.5
    subject_acc_min 0.5
    subject_acc_max 1.0
    template_acc_min 0.5
    template_acc_max 1.0
    """
    counts = counted(answers, n_failed)
    rows = []
    for factor, held in {"subject": "template_id", "template": "subject_index"}.items():
        terms = consist_terms(answers, by=by, within=[held])
        rows += ratio_rows(f"{factor}_consist", terms, counts, seed=seed, n_rounds=n_rounds)
    names = _name_accuracy(answers)
    templates = spread_sums(answers)
    for end, extreme in {"min": pl.min("accuracy"), "max": pl.max("accuracy")}.items():
        terms = pair_terms(names, extreme, pl.lit(1.0))
        rows += plain_rows(f"subject_acc_{end}", terms, counts)
    for end in ("min", "max"):
        sums = templates.select("relation_id", numerator=end, denominator="n_pairs")
        rows += plain_rows(f"template_acc_{end}", sums, counts)
    return table(rows)


def _name_accuracy(answers: pl.DataFrame) -> pl.DataFrame:
    """The accuracy of each name of a pair, over the templates that it has an answer under."""
    return answers.group_by(_NAME).agg(accuracy=pl.mean("correct"))
