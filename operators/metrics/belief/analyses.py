"""BELIEF's analyses of a single run, by name: those that conf/metrics/ asks for."""

from collections.abc import Collection, Sequence
from typing import Literal

import polars as pl
from polars import selectors

from factsweep.operators.metrics.belief import consist
from factsweep.operators.metrics.belief.calibration import ovconf_by_length
from factsweep.operators.metrics.shared.rows import (
    ROWS,
    Counts,
    Row,
    counted,
    pair_terms,
    plain_rows,
    ratio_rows,
    table,
)

_TEMPLATE = ("relation_id", "template_id")


def template_accuracy(answers: pl.DataFrame) -> pl.DataFrame:
    """Give each template its Acc@1 (0 to 1): the mean over pairs of the mean over their names.

    Columns: relation_id, template_id, accuracy, n_pairs (with an answer under it) and n (answers);
    sorted by the ids.

    Source: BELIEF, appendix C.2. The paper does not say how names weigh; here pairs count alike.
    """
    ids = pl.col(*_TEMPLATE, "pair_id")
    coded = answers.select(ids, "correct").with_columns(selectors.string().cast(pl.Categorical))
    cells = coded.group_by(ids).agg(n_correct=pl.sum("correct"), n_names=pl.len())
    # Whole numbers first: sums of shares would depend on the order of the rows.
    sizes = cells.group_by(*_TEMPLATE, "n_names").agg(pl.sum("n_correct"), n_pairs=pl.len())
    shares = (pl.col("n_correct") / pl.col("n_names")).sum() / pl.sum("n_pairs")
    n = (pl.col("n_names") * pl.col("n_pairs")).sum().cast(pl.Int64)
    templates = sizes.sort("n_names").group_by(_TEMPLATE, maintain_order=True)
    found = templates.agg(accuracy=shares, n_pairs=pl.sum("n_pairs").cast(pl.Int64), n=n)
    return found.with_columns(pl.col(_TEMPLATE).cast(pl.String)).sort(_TEMPLATE)


def template_spread(answers: pl.DataFrame, n_failed: pl.DataFrame | None = None) -> pl.DataFrame:
    """Give min, mean and max over templates of their accuracy, as rows of the table ROWS.

    Metrics `template_spread_min`, `_mean` and `_max`: a relation's own, and micro-averaged over
    relations, each weighted by its pairs that have any answer. The templates of the minimum and the
    maximum are chosen on the answers that they are then measured on.

    Source: BELIEF, appendix C.2, Table 11 (2025: Table 12).

    >>> answers = pl.DataFrame({
    ...     "relation_id": ["P1"] * 4, "template_id": ["a", "a", "b", "b"],
    ...     "pair_id": ["t1", "t2", "t1", "t2"], "correct": [True, True, True, False],
    ... })
    >>> overall = template_spread(answers).filter(pl.col("slice").is_null())
    >>> overall.select("metric", "value").rows()
    [('template_spread_min', 0.5), ('template_spread_mean', 0.75), ('template_spread_max', 1.0)]
    """
    counts = counted(answers, n_failed)
    return table(_spread_rows("template_spread", answers, counts, ("min", "mean", "max")))


def _spread_rows(
    metric: str, answers: pl.DataFrame, counts: Counts, ends: Sequence[str]
) -> list[Row]:
    """The rows of some of the ends between which the templates' accuracies lie."""
    pairs = answers.group_by(pl.col("relation_id").cast(pl.String)).agg(
        n_pairs=pl.col("pair_id").n_unique().cast(pl.Int64)
    )
    accuracy = pl.col("accuracy")
    templates = template_accuracy(answers).group_by("relation_id")
    spread = templates.agg(min=accuracy.min(), mean=accuracy.mean(), max=accuracy.max())
    weighted = spread.join(pairs, on="relation_id").sort("relation_id")
    rows = []
    for end in ends:
        numerator = pl.col(end) * pl.col("n_pairs")
        sums = weighted.select("relation_id", numerator=numerator, denominator="n_pairs")
        rows += plain_rows(f"{metric}_{end}", sums, counts)
    return rows


_NAME = ("relation_id", "pair_id", "subject_index")


def subject_template(
    answers: pl.DataFrame,
    n_failed: pl.DataFrame | None = None,
    *,
    by: consist.By = "match",
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
    >>> rows.select("metric", "value").rows()[1:4:2]
    [('template_consist', 0.5), ('subject_acc_max', 1.0)]
    """
    counts = counted(answers, n_failed)
    rows = []
    for factor, held in {"subject": "template_id", "template": "subject_index"}.items():
        terms = consist.consist_terms(answers, by=by, within=[held])
        rows += ratio_rows(f"{factor}_consist", terms, counts, seed=seed, n_rounds=n_rounds)
    names = answers.group_by(_NAME).agg(accuracy=pl.mean("correct"))  # over its templates
    for end, extreme in {"min": pl.min("accuracy"), "max": pl.max("accuracy")}.items():
        terms = pair_terms(names, extreme, pl.lit(1.0))
        rows += plain_rows(f"subject_acc_{end}", terms, counts)
    return table(rows + _spread_rows("template_acc", answers, counts, ("min", "max")))


def manual_paraphrase(
    answers: pl.DataFrame,
    templates: pl.DataFrame,
    n_failed: pl.DataFrame | None = None,
    *,
    by: consist.By = "match",
    seed: int,
    n_rounds: int = 1000,
) -> pl.DataFrame:
    r"""Compare them: rows of the table ROWS, over all and per relation.

    - `manual_rank`: the mean rank of the manual templates among all of their relation, by Acc@1,
      1 being the best; templates of equal accuracy share their mean rank.
    - `inner_group_consist`, `inter_group_consist`: Consist among the prompts of a pair with the
      same name whose templates are of the same group (a manual one and its paraphrases), and of
      different groups. With intervals. Null where the groups are not known.

    `answers` needs relation_id, pair_id, template_id, subject_index, key and correct; `templates`
    template_id, origin and group. `by` as in `consist`, `n_failed` as in `belief`.

    Source: BELIEF, appendix C.4, Table 13 (2025: Table 14). It does not say that the name is held;
    its two numbers, weighted by their pairs of templates, come near to the Consist of
    prompts with the same name (Table 12), and not to that of all prompts (Table 3).

    >>> answers = pl.DataFrame({
    ...     "relation_id": ["P1"] * 3, "pair_id": ["t"] * 3, "template_id": ["a", "b", "c"],
    ...     "subject_index": [0, 0, 0], "correct": [True, True, False],
    ...     "key": ["\x1frome\x1f", "\x1frome\x1f", "\x1foslo\x1f"],
    ... })
    >>> templates = pl.DataFrame({
    ...     "template_id": ["a", "b", "c"], "origin": ["manual", "paraphrase", "manual"],
    ...     "group": [0, 0, 1],
    ... })
    >>> rows = manual_paraphrase(answers, templates, seed=1, n_rounds=10)
    >>> rows.filter(pl.col("slice").is_null()).select("metric", "value").rows()
    [('manual_rank', 2.25), ('inner_group_consist', 1.0), ('inter_group_consist', 0.0)]
    """
    counts = counted(answers, n_failed)
    rows = plain_rows("manual_rank", _manual_ranks(answers, templates), counts)
    groups = templates.select("template_id", "group").drop_nulls()
    grouped = answers.select(*_NAME, "template_id", "key").join(groups, on="template_id")
    inner = consist.match_counts(grouped, by=by, within=["subject_index", "group"])
    inter = _difference(consist.match_counts(grouped, by=by, within=["subject_index"]), inner)
    for name, found in {"inner": inner, "inter": inter}.items():
        terms = consist.share_of_matches(found)
        rows += ratio_rows(f"{name}_group_consist", terms, counts, seed=seed, n_rounds=n_rounds)
    return table(rows)


def _manual_ranks(answers: pl.DataFrame, templates: pl.DataFrame) -> pl.DataFrame:
    """Each manual template's rank in its relation, over 1."""
    accuracy = template_accuracy(answers)
    # Sums of the same shares in another order differ in their last digits: those are ties.
    rank = pl.col("accuracy").round(12).rank("average", descending=True).over("relation_id")
    origin = templates.select(pl.col("template_id").cast(pl.String), "origin")
    ranked = accuracy.with_columns(numerator=rank, denominator=1.0).join(origin, on="template_id")
    return ranked.filter(pl.col("origin") == "manual")


def _difference(all_pairs: pl.DataFrame, inner: pl.DataFrame) -> pl.DataFrame:
    """The counts of the prompt pairs that are among `all_pairs` and not among `inner`."""
    both = all_pairs.join(inner, on=["relation_id", "pair_id"], suffix="_inner")
    return both.select(
        "relation_id",
        "pair_id",
        *(pl.col(name) - pl.col(f"{name}_inner") for name in ("n_matches", "n_compared")),
    )


Analysis = Literal["template_spread", "subject_template", "manual_paraphrase", "ovconf_by_length"]


def analyses(
    names: Collection[Analysis],
    answers: pl.DataFrame,
    templates: pl.DataFrame,
    n_failed: pl.DataFrame,
    canary: pl.DataFrame | None,
    *,
    by: consist.By,
    seed: int,
    n_rounds: int,
) -> pl.DataFrame:
    """Make those analyses that are named, as rows of the table ROWS.

    `canary` are the log-probabilities of greedy answers; null, and with it no row by length, where
    none were asked for. `by` is how Consist compares answers.
    """
    drawn, found = {"seed": seed, "n_rounds": n_rounds}, [ROWS.to_frame()]
    if "template_spread" in names:
        found.append(template_spread(answers, n_failed))
    if "subject_template" in names:
        found.append(subject_template(answers, n_failed, by=by, **drawn))
    if "manual_paraphrase" in names:
        found.append(manual_paraphrase(answers, templates, n_failed, by=by, **drawn))
    if "ovconf_by_length" in names and canary is not None:
        found.append(ovconf_by_length(answers, canary, **drawn))
    return pl.concat(found)
