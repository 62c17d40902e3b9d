"""All PRobELM metrics of one model, as rows of the metrics table."""

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations
from typing import Literal, NamedTuple, get_args

import polars as pl

from factsweep.operators.metrics.probelm import ranking
from factsweep.operators.metrics.shared.bootstrap import bootstrap_ratio
from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.rows import Row, counted_pairs, pair_terms
from factsweep.operators.prompts.plausibility import PROMPT_TYPES
from factsweep.operators.schemas import PLACE, SETTING, columns, schema

PROBELM = columns("metrics", *SETTING[:2])
# The setting of what is measured over all three prompt types.
ALL_TYPES = "all"
# The relation that the paper measures 2017 without (appendix C).
OCCUPATION = "P106"
PLAUSIBILITY: Mapping[str, tuple[str, str, str]] = {
    "plausibility": ("accuracy", "mrr", "ndcg"),
    "plausibility_published": ("accuracy", "mrr", "ndcg_at_3"),
}
_MEAN = "mean of accuracy, MRR and NDCG over prompt types, in percent"
_RANDOM = "what candidates in a random order would score"
METRICS = (
    *ranking.RANKING,
    Metric("plausibility", "plausibility", _MEAN, "higher"),
    Metric("plausibility_published", better="higher"),
    Metric("baseline_accuracy", "accuracy of a random order", _RANDOM),
    Metric("baseline_plausibility", "plausibility of a random order", _RANDOM),
)


# A slice: its name (null: everything) and which rows are in it.
_Part = tuple[str | None, pl.Expr]


class _Measured(NamedTuple):
    """Group scores (or plausibility) of one setting and variant; `prefix` goes before the names."""

    variant: str | None
    prefix: str
    setting: str
    scores: pl.DataFrame
    metrics: tuple[str, ...]


def probelm(
    scores: pl.DataFrame,
    candidates: pl.DataFrame,
    *,
    seed: int,
    n_rounds: int = 1000,
    without: Collection[str] = (OCCUPATION,),
) -> pl.DataFrame:
    """Compute every PRobELM metric: one row per number (table ROWS, after the column `setting`).

    `scores` has one row per text: setting (a prompt type), candidate_id, logprob (the sum over the
    scored tokens, nats) and n_tokens; where it has entity_logprob and entity_n_tokens, too, the
    variants `score=answer_sum` and `score=answer_mean` are measured in addition to the perplexity
    of the text (variant null). `candidates` is that of `operators.datasets.probelm`. A group with a
    candidate without a log-probability counts in `n_failed` and is left out of every mean.

    The settings are those of `scores`. Where all three prompt types are there, `plausibility` and
    `plausibility_published` stand under the setting "all", over the groups scored in all three.
    Slices: each relation, each frame, and each of these without one of the relations `without`.
    Rows `baseline_…` are what a random order gives, exactly. Intervals are of 95 %, of groups
    resampled within their relations.

    Source: PRobELM, sections 4.2 and 5.3 and appendix C.
    """
    groups = candidates.filter("is_positive").select("relation_id", "pair_id", "frame")
    parts = list(_parts(groups, without))
    rows = [
        (measured.setting, *row)
        for measured in _measured(scores, candidates)
        for part in parts
        for row in _rows(measured, groups, part, seed, n_rounds)
    ]
    return pl.DataFrame(rows, schema=PROBELM, orient="row")


def _measured(scores: pl.DataFrame, candidates: pl.DataFrame) -> Iterator[_Measured]:
    tables: dict[str, pl.DataFrame] = {}
    for score in get_args(ranking.Score):
        if not set(ranking.COLUMNS_OF[score]) <= set(scores.columns):
            continue
        tables = group_tables(scores, candidates, score)
        variant = None if score == "text_perplexity" else f"score={score}"
        for each in with_all_types(tables):
            yield _Measured(variant, "", *each)
    chance = ranking.random_group_scores(candidates)
    for each in with_all_types(dict.fromkeys(tables, chance)):
        yield _Measured(None, "baseline_", *each)


def group_tables(
    scores: pl.DataFrame, candidates: pl.DataFrame, score: ranking.Score = "text_perplexity"
) -> dict[str, pl.DataFrame]:
    """The groups' scores (GROUP_SCORES) in each prompt type that is there; as in `probelm`."""
    there = scores["setting"].unique()
    costs = {
        setting: ranking.costs(scores.filter(setting=setting), score)
        for setting in PROMPT_TYPES
        if setting in there
    }
    return {setting: ranking.group_scores(candidates, each) for setting, each in costs.items()}


def with_all_types(
    tables: Mapping[str, pl.DataFrame],
) -> Iterator[tuple[str, pl.DataFrame, tuple[str, ...]]]:
    """Each prompt type with its table and metrics; then all three together, if all are there."""
    for setting, table in tables.items():
        yield setting, table, ranking.RANKING_METRICS
    if len(tables) == len(PROMPT_TYPES):
        yield ALL_TYPES, plausibility(list(tables.values())), tuple(PLAUSIBILITY)


def plausibility(tables: Collection[pl.DataFrame]) -> pl.DataFrame:
    """The plausibility of each group that is in all `tables`: one per prompt type (GROUP_SCORES).

    Columns: relation_id, pair_id, frame, plausibility, plausibility_published: the mean of the
    metrics in PLAUSIBILITY over the prompt types.

    Source: PRobELM, section 4.2. The mean over groups of these means is the mean of the nine
    numbers in a row of Table 2 where no group failed.
    """
    columns = ranking.GROUP_SCORES.names()[:3]
    means = [pl.mean_horizontal(metrics).alias(name) for name, metrics in PLAUSIBILITY.items()]
    rows = pl.concat(table.select(*columns, *means) for table in tables)
    whole = rows.filter(pl.len().over("pair_id") == len(tables))
    return whole.group_by(columns, maintain_order=True).agg(pl.mean(*PLAUSIBILITY))


def _parts(groups: pl.DataFrame, without: Collection[str]) -> Iterator[_Part]:
    """The slices that have groups; relations are cut out of the whole, not listed here."""
    frames = ((f"frame={x}", pl.col("frame") == x) for x in groups["frame"].unique().sort())
    for name, rows in ((None, pl.lit(True)), *frames):
        yield name, rows
        mine = groups.filter(rows)["relation_id"]
        for relation in without:
            if relation in mine and mine.n_unique() > 1:
                names = [*([name] if name else []), f"without={relation}"]
                yield ",".join(names), rows & (pl.col("relation_id") != relation)


def _rows(
    measured: _Measured, groups: pl.DataFrame, part: _Part, seed: int, n_rounds: int
) -> Iterator[Row]:
    """The rows of a slice; everything brings the rows of the relations along."""
    slice_, rows = part
    scores = measured.scores.filter(rows)
    counts = counted_pairs(groups.filter(rows), scores)
    for metric in measured.metrics:
        terms = pair_terms(scores, pl.sum(metric), pl.len())
        found = bootstrap_ratio(terms, seed=seed, n_rounds=n_rounds)
        name = measured.prefix + metric
        if slice_ is None:
            yield from counts.rows(name, found, measured.variant)
        else:
            yield counts.row(name, found.overall, variant=measured.variant, part=slice_)


CORRELATIONS = schema("first text, second text, pearson float, n int")


def correlations(
    metrics: pl.DataFrame, between: Literal["setting", "metric"], names: tuple[str, ...]
) -> pl.DataFrame:
    """Correlate each two of the settings (or metrics) `names` (columns: CORRELATIONS).

    Source: PRobELM, section 5.1. The paper does not say what is correlated. Its four numbers
    (.8281, .8672, .8976; .9982) are those of all cells of two groups of columns in Table 2 taken
    together: two prompt types over models × metrics, two metrics over models × prompt types.

    `metrics` has model, setting, metric and value, and may have benchmark, variant and slice: two
    values are compared where all but `between` is the same. `n` counts those couples. Null: fewer
    than two, or one side is constant.

    >>> metrics = pl.DataFrame({
    ...     "model": ["a", "b", "c"] * 2, "setting": ["statement"] * 3 + ["question"] * 3,
    ...     "metric": "mrr", "value": [0.1, 0.2, 0.3, 0.2, 0.4, 0.6],
    ... })
    >>> correlations(metrics, "setting", ("statement", "question")).rows()
    [('statement', 'question', 1.0, 3)]
    """
    kept = metrics.filter(pl.col(between).is_in(names)).drop_nulls("value")
    same = [name for name in PLACE if name != between and name in kept.columns]
    rows = []
    for first, second in combinations(names, 2):
        one, other = (
            kept.filter(pl.col(between) == name).drop(between) for name in (first, second)
        )
        both = one.join(other, on=same, nulls_equal=True)
        pearson = both.select(pl.corr("value", "value_right").fill_nan(None)).item()
        rows.append((first, second, pearson, both.height))
    return pl.DataFrame(rows, schema=CORRELATIONS, orient="row")
