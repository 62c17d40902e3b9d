"""Manual against paraphrased templates: are they as good, and how much do they vary?"""

import polars as pl

from factsweep.operators.metrics.belief.consist import By, match_counts, share_of_matches
from factsweep.operators.metrics.belief.template_spread import template_accuracy
from factsweep.operators.metrics.shared.rows import counted, plain_rows, ratio_rows, table


def manual_paraphrase(
    answers: pl.DataFrame,
    templates: pl.DataFrame,
    n_failed: pl.DataFrame | None = None,
    *,
    by: By = "match",
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
    grouped = _with_groups(answers, templates)
    inner = match_counts(grouped, by=by, within=["subject_index", "group"])
    inter = _difference(match_counts(grouped, by=by, within=["subject_index"]), inner)
    for name, found in {"inner": inner, "inter": inter}.items():
        terms = share_of_matches(found)
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


def _with_groups(answers: pl.DataFrame, templates: pl.DataFrame) -> pl.DataFrame:
    groups = templates.select("template_id", "group").drop_nulls()
    rows = answers.select("relation_id", "pair_id", "template_id", "subject_index", "key")
    return rows.join(groups, on="template_id")


def _difference(all_pairs: pl.DataFrame, inner: pl.DataFrame) -> pl.DataFrame:
    """The counts of the prompt pairs that are among `all_pairs` and not among `inner`."""
    both = all_pairs.join(inner, on=["relation_id", "pair_id"], suffix="_inner")
    return both.select(
        "relation_id",
        "pair_id",
        *(pl.col(name) - pl.col(f"{name}_inner") for name in ("n_matches", "n_compared")),
    )
