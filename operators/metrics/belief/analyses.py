"""BELIEF's analyses of a single run, by name, as conf/metrics/ lists them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import polars as pl

from factsweep.operators.metrics.belief.answers import (
    By,
    CondensedAnswers,
    consist_terms,
    match_counts,
    share_of_matches,
)
from factsweep.operators.metrics.shared.bootstrap import BootstrapResult
from factsweep.operators.metrics.shared.rows import Counts, Row, pair_terms, plain_rows, table

_TEMPLATE = ("relation_id", "template_id")


def template_accuracy(rates: pl.DataFrame) -> pl.DataFrame:
    """Give each template its Acc@1 (0 to 1): the mean over pairs of the mean over their names.

    `rates` comes from `answers.template_rates`. Columns: relation_id, template_id, accuracy,
    n_pairs (with an answer under it) and n (answers); sorted by the ids.

    Source: BELIEF, appendix C.2. The paper does not say how names weigh; here pairs count alike.
    """
    # Whole numbers first: sums of shares would depend on the order of the rows.
    n_correct = (pl.col("n_correct") * pl.col("n_pairs")).sum()
    sizes = rates.group_by(*_TEMPLATE, "n_names").agg(pl.sum("n_pairs"), n_correct=n_correct)
    shares = (pl.col("n_correct") / pl.col("n_names")).sum() / pl.sum("n_pairs")
    n = (pl.col("n_names") * pl.col("n_pairs")).sum()
    templates = sizes.sort("n_names").group_by(_TEMPLATE, maintain_order=True)
    return templates.agg(accuracy=shares, n_pairs=pl.sum("n_pairs"), n=n).sort(_TEMPLATE)


def spread_rows(
    metric: str, condensed: CondensedAnswers, counts: Counts, ends: Sequence[str]
) -> list[Row]:
    """Give min, mean or max (`ends`) over templates of their accuracy, as rows of the table ROWS.

    A relation's own, and micro-averaged over relations, each weighted by its pairs that have any
    answer. The templates of the minimum and the maximum are chosen on the answers that they are
    then measured on.

    Source: BELIEF, appendix C.2, Table 11 (2025: Table 12).
    """
    pairs = condensed.pairs.group_by("relation_id").agg(n_pairs=pl.len().cast(pl.Int64))
    accuracy = pl.col("accuracy")
    templates = template_accuracy(condensed.rates).group_by("relation_id")
    spread = templates.agg(min=accuracy.min(), mean=accuracy.mean(), max=accuracy.max())
    weighted = spread.join(pairs, on="relation_id").sort("relation_id")
    rows = []
    for end in ends:
        numerator = pl.col(end) * pl.col("n_pairs")
        sums = weighted.select("relation_id", numerator=numerator, denominator="n_pairs")
        rows += plain_rows(f"{metric}_{end}", sums, counts)
    return rows


_NAME = ("relation_id", "pair_id", "subject_index")
_FACTORS = {"subject_consist": "template_id", "template_consist": "subject_index"}


def _subject_terms(answers: pl.DataFrame, by: By) -> dict[str, pl.DataFrame]:
    names = answers.group_by(_NAME).agg(accuracy=pl.mean("correct"))  # over its templates
    return {
        **{
            metric: consist_terms(answers, by=by, within=[factor])
            for metric, factor in _FACTORS.items()
        },
        "subject_acc_min": pair_terms(names, pl.min("accuracy")),
        "subject_acc_max": pair_terms(names, pl.max("accuracy")),
    }


def subject_rows(
    condensed: CondensedAnswers, counts: Counts, estimates: Mapping[str, BootstrapResult]
) -> list[Row]:
    """Vary one factor and hold the other: rows of the table ROWS, over all and per relation.

    - `subject_consist`: Consist among the prompts of a pair that have the same template and
      differ in the name; `template_consist`: the same name, another template.
    - `subject_acc_min`, `subject_acc_max`: the lowest and the highest Acc@1 of all subsets of the
      prompts that hold one name per pair (under all templates); `template_acc_min`,
      `template_acc_max`: of those that hold one template per relation (with all names).

    Subsets are independent from pair to pair (relation to relation), so the extremes are reached
    by taking each one's worst or best. The Consist rows have intervals.

    Source: BELIEF, appendix C.3, Table 12 (2025: Table 13). Its template columns equal those of
    Table 11, which shows that the extremes are taken this way.
    """
    return [
        *(row for metric in _FACTORS for row in counts.rows(metric, estimates[metric])),
        *plain_rows("subject_acc_min", condensed.of("subject_acc_min"), counts),
        *plain_rows("subject_acc_max", condensed.of("subject_acc_max"), counts),
        *spread_rows("template_acc", condensed, counts, ("min", "max")),
    ]


_GROUPS = ("inner_group_consist", "inter_group_consist")


def _group_terms(answers: pl.DataFrame, templates: pl.DataFrame, by: By) -> dict[str, pl.DataFrame]:
    ids = pl.col("template_id").cast(answers.schema["template_id"])
    groups = templates.select(ids, "group").drop_nulls()
    grouped = answers.select(*_NAME, "template_id", "key").join(groups, on="template_id")
    inner = match_counts(grouped, by=by, within=["subject_index", "group"])
    of_all = match_counts(grouped, by=by, within=["subject_index"])
    joined = of_all.join(inner, on=["relation_id", "pair_id"], suffix="_inner")
    inter = joined.with_columns(
        pl.col(name) - pl.col(f"{name}_inner") for name in ("n_matches", "n_compared")
    )
    return dict(zip(_GROUPS, map(share_of_matches, (inner, inter)), strict=True))


def manual_rows(
    condensed: CondensedAnswers,
    counts: Counts,
    estimates: Mapping[str, BootstrapResult],
    templates: pl.DataFrame,
) -> list[Row]:
    """Compare manual templates with paraphrases: rows of the table ROWS, over all, per relation.

    - `manual_rank`: the mean rank of the manual templates among all of their relation, by Acc@1,
      1 being the best; templates of equal accuracy share their mean rank.
    - `inner_group_consist`, `inter_group_consist`: Consist among the prompts of a pair with the
      same name whose templates are of the same group (a manual one and its paraphrases), and of
      different groups. With intervals. Null where the groups are not known.

    `templates` needs template_id, origin and group.

    Source: BELIEF, appendix C.4, Table 13 (2025: Table 14). It does not say that the name is held;
    its two numbers, weighted by their pairs of templates, come near to the Consist of
    prompts with the same name (Table 12), and not to that of all prompts (Table 3).
    """
    # Sums of the same shares in another order differ in their last digits: those are ties.
    rank = pl.col("accuracy").round(12).rank("average", descending=True).over("relation_id")
    origin = templates.select(pl.col("template_id").cast(pl.String), "origin")
    ranked = template_accuracy(condensed.rates).with_columns(numerator=rank, denominator=1.0)
    manual = ranked.join(origin, on="template_id").filter(origin="manual")
    ranks = plain_rows("manual_rank", manual, counts)
    return ranks + [row for metric in _GROUPS for row in counts.rows(metric, estimates[metric])]


Analysis = Literal["template_spread", "subject_template", "manual_paraphrase", "ovconf_by_length"]
ESTIMATED = (*_FACTORS, *_GROUPS)


def analysis_terms(
    names: Collection[Analysis], answers: pl.DataFrame, templates: pl.DataFrame, by: By
) -> dict[str, pl.DataFrame]:
    """The terms of the metrics of the named analyses; `by` as in `consist_terms`.

    `answers` needs relation_id, pair_id, template_id, subject_index, key and correct.
    """
    subjects = _subject_terms(answers, by) if "subject_template" in names else {}
    groups = _group_terms(answers, templates, by) if "manual_paraphrase" in names else {}
    return subjects | groups


def analyses(
    names: Collection[Analysis],
    condensed: CondensedAnswers,
    counts: Counts,
    estimates: Mapping[str, BootstrapResult],
    templates: pl.DataFrame,
) -> pl.DataFrame:
    """The named analyses as rows of the table ROWS; `estimates` are those of ESTIMATED."""
    rows = []
    if "template_spread" in names:
        rows += spread_rows("template_spread", condensed, counts, ("min", "mean", "max"))
    if "subject_template" in names:
        rows += subject_rows(condensed, counts, estimates)
    if "manual_paraphrase" in names:
        rows += manual_rows(condensed, counts, estimates, templates)
    return table(rows)
