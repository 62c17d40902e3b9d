"""PRobELM: how well a model ranks a group's candidates: accuracy, MRR, NDCG and plausibility.

A group's candidates are ranked by their cost, ascending. Equal costs are a *tie*: in rank, each
takes the mean of the tie's places; in NDCG, the mean over the tie's orders, which is the mean of
the discounts of its places (as in scikit-learn's `ndcg_score`).

Source: PRobELM, sections 4.1 and 4.2. The paper is silent about ties.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations, product
from typing import Literal, Unpack, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from factsweep.operators.metrics.shared.bootstrap import Draws, bootstrap_ratio
from factsweep.operators.metrics.shared.rows import Metric, count_scored_pairs, pair_terms
from factsweep.operators.prompts.plausibility import PROMPT_TYPES
from factsweep.operators.schemas import PLACE, SETTING, columns, schema

Score = Literal["text_perplexity", "answer_sum", "answer_mean"]
_FIRST = "share of groups whose true candidate is the likeliest, in percent"
_ORDER = "how well the ranking agrees with the plausible order, in percent"
_AT_3 = "the same over the three likeliest candidates, in percent"
RANKING = (
    Metric("accuracy", "accuracy", _FIRST, "higher"),
    Metric("mrr", "MRR", "mean of 1 / the rank of the true candidate, in percent", "higher"),
    Metric("ndcg", "NDCG", _ORDER, "higher"),
    Metric("ndcg_binary", heading="", better="higher"),
    Metric("ndcg_at_3", "NDCG@3", _AT_3, "higher"),
)
RANKING_METRICS = tuple(metric.name for metric in RANKING)
PROBELM = columns("metrics", *SETTING[:2])
# The setting of numbers over all three prompt types.
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
    *RANKING,
    Metric("plausibility", "plausibility", _MEAN, "higher"),
    Metric("plausibility_published", heading="", better="higher"),
    Metric("baseline_accuracy", "accuracy of a random order", _RANDOM),
    Metric("baseline_plausibility", "plausibility of a random order", _RANDOM),
)
_GROUP = ("relation_id", "pair_id", "frame")
GROUP_SCORES = pl.Schema(
    dict.fromkeys(_GROUP, pl.String) | dict.fromkeys(RANKING_METRICS, pl.Float64)
)
# The plausible one has 11, its ten alternatives have 10 to 1 (rank 2 to 11 in the file).
RELEVANCE_OF_RANK_0 = 12
CUT = 3


_ENTITY = ("entity_logprob", "entity_n_tokens")
# The columns of the log-probability, and of the number of tokens that it sums.
COLUMNS_OF: dict[Score, tuple[str, str]] = {
    "text_perplexity": ("logprob", "n_tokens"),
    "answer_sum": _ENTITY,
    "answer_mean": _ENTITY,
}
CORRELATIONS = schema("first text, second text, pearson float, n int")


def probelm(scores: pl.DataFrame, candidates: pl.DataFrame, **draws: Unpack[Draws]) -> pl.DataFrame:
    """Compute every PRobELM metric: one row per number (table ROWS, after the column `setting`).

    `scores` has one row per text: setting (a prompt type), candidate_id, logprob (the sum over the
    scored tokens, nats) and n_tokens; if it has entity_logprob and entity_n_tokens, the variants
    `score=answer_sum` and `score=answer_mean` are measured in addition to the perplexity of the
    text (variant null). `candidates` is that of `operators.datasets.probelm`. A group with a
    candidate without a log-probability counts in `n_failed` and is left out of every mean.

    Where all three prompt types are present, `plausibility` and `plausibility_published` have the
    setting "all", over the groups scored in all three. Slices: each relation, each frame, and each
    of these without the relation `OCCUPATION`. Rows `baseline_…` are the exact numbers of a random
    order. Intervals are of 95 %, of groups resampled within their relations.

    Source: PRobELM, sections 4.2 and 5.3 and appendix C.
    """
    groups = candidates.filter("is_positive").select("relation_id", "pair_id", "frame")
    tables: dict[str, pl.DataFrame] = {}
    measured = []  # variant, prefix of the metrics' names, setting, scores of groups, metrics
    for score in get_args(Score):
        if set(COLUMNS_OF[score]) <= set(scores.columns):
            tables = group_tables(scores, candidates, score)
            variant = None if score == "text_perplexity" else f"score={score}"
            measured += [(variant, "", *values) for values in with_all_types(tables)]
    chance = dict.fromkeys(tables, random_group_scores(candidates))
    measured += [(None, "baseline_", *values) for values in with_all_types(chance)]
    rows: list[tuple[object, ...]] = []
    for (variant, prefix, setting, values, metrics), (name, is_in_slice) in product(
        measured, list(_slices(groups))
    ):
        slice_values = values.filter(is_in_slice)
        counts = count_scored_pairs(groups.filter(is_in_slice), slice_values)
        for metric in metrics:
            terms = pair_terms(slice_values, pl.sum(metric), pl.len())
            ratio = bootstrap_ratio(terms, **draws)
            metric_rows = [counts.row(prefix + metric, ratio.overall, None, variant, name)]
            if name is None:  # everything brings the rows of the relations along
                metric_rows = counts.rows(prefix + metric, ratio, variant)
            rows += ((setting, *row) for row in metric_rows)
    return pl.DataFrame(rows, schema=PROBELM, orient="row")


def group_tables(
    scores: pl.DataFrame, candidates: pl.DataFrame, score: Score = "text_perplexity"
) -> dict[str, pl.DataFrame]:
    """The groups' scores (GROUP_SCORES) in each prompt type of the scores; as in `probelm`."""
    settings = scores["setting"].unique()
    return {
        setting: group_scores(candidates, costs(scores.filter(setting=setting), score))
        for setting in PROMPT_TYPES
        if setting in settings
    }


def with_all_types(
    tables: Mapping[str, pl.DataFrame],
) -> Iterator[tuple[str, pl.DataFrame, tuple[str, ...]]]:
    """Each prompt type with its table and metrics; then all three together, if all are present."""
    for setting, table in tables.items():
        yield setting, table, RANKING_METRICS
    if len(tables) == len(PROMPT_TYPES):
        yield ALL_TYPES, plausibility(list(tables.values())), tuple(PLAUSIBILITY)


def plausibility(tables: Collection[pl.DataFrame]) -> pl.DataFrame:
    """The plausibility of each group that is in all `tables`: one per prompt type (GROUP_SCORES).

    Columns: relation_id, pair_id, frame, plausibility, plausibility_published: the mean of the
    metrics in PLAUSIBILITY over the prompt types.

    Source: PRobELM, section 4.2. The mean over groups of these means is the mean of the nine
    numbers in a row of Table 2 where no group failed.
    """
    columns = GROUP_SCORES.names()[:3]
    means = [pl.mean_horizontal(metrics).alias(name) for name, metrics in PLAUSIBILITY.items()]
    rows = pl.concat(table.select(*columns, *means) for table in tables)
    complete = rows.filter(pl.len().over("pair_id") == len(tables))
    return complete.group_by(columns, maintain_order=True).agg(pl.mean(*PLAUSIBILITY))


def _slices(groups: pl.DataFrame) -> Iterator[tuple[str | None, pl.Expr]]:
    """The slices that have groups; relations are cut out of the whole, not listed here."""
    frames = ((f"frame={x}", pl.col("frame") == x) for x in groups["frame"].unique().sort())
    for name, rows in ((None, pl.lit(True)), *frames):
        yield name, rows
        relation_ids = groups.filter(rows)["relation_id"]
        if OCCUPATION in relation_ids and relation_ids.n_unique() > 1:
            names = [*([name] if name else []), f"without={OCCUPATION}"]
            yield ",".join(names), rows & (pl.col("relation_id") != OCCUPATION)


def costs(scores: pl.DataFrame, score: Score) -> pl.DataFrame:
    """What candidates are ranked by, in nats, the most plausible first: candidate_id, cost.

    `text_perplexity` is the mean negative log-probability of the text's tokens (logprob and
    n_tokens): perplexity is its exponential, which has the same order and may overflow.
    `answer_mean` is that of the entity's tokens (entity_logprob and entity_n_tokens), `answer_sum`
    their sum. Null: no log-probability, a NaN, or no scored token.

    >>> scores = pl.DataFrame(
    ...     {"candidate_id": ["a", "b"], "logprob": [-8.0, -9.0], "n_tokens": [4, 6]}
    ... )
    >>> costs(scores, "text_perplexity").rows()
    [('a', 2.0), ('b', 1.5)]
    """
    logprob, n_tokens = (pl.col(name) for name in COLUMNS_OF[score])
    is_defined = (n_tokens > 0) & logprob.is_not_nan()
    divisor = pl.lit(1) if score == "answer_sum" else n_tokens
    cost = -logprob.cast(pl.Float64) / divisor
    return scores.select("candidate_id", cost=pl.when(is_defined).then(cost))


def group_scores(candidates: pl.DataFrame, costs: pl.DataFrame) -> pl.DataFrame:
    """Score each group whose candidates all have a cost (columns: GROUP_SCORES).

    `candidates` has pair_id, relation_id, frame, candidate_id, rank (of the file, from 1) and
    is_positive, one positive per group; `costs` has candidate_id and cost.

    | column | value |
    |---|---|
    | accuracy | 1 if the plausible candidate alone is ranked first, else 0 |
    | mrr | 1 / its rank |
    | ndcg | over the whole list; relevance = 12 − rank in the file, at least 0; linear gain |
    | ndcg_binary | over the whole list; relevance = 1 for the plausible one, 0 for the others |
    | ndcg_at_3 | the same, places below the third count 0 |

    >>> candidates = pl.DataFrame({
    ...     "pair_id": ["g"] * 3, "relation_id": ["P27"] * 3, "frame": ["2023-11"] * 3,
    ...     "candidate_id": ["g.1", "g.2", "g.3"], "rank": [1, 2, 3],
    ...     "is_positive": [True, False, False],
    ... })
    >>> costs = pl.DataFrame({"candidate_id": ["g.1", "g.2", "g.3"], "cost": [1.5, 0.5, 1.5]})
    >>> group_scores(candidates, costs).select("accuracy", "mrr").row(0)
    (0.0, 0.4)
    """
    rows = candidates.join(costs, on="candidate_id", how="left", maintain_order="left")
    rows = rows.filter(pl.col("cost").is_not_null().all().over("pair_id"))
    rows = rows.with_columns(
        place=pl.col("cost").rank("average").over("pair_id"),
        first=pl.col("cost").rank("min").over("pair_id").cast(pl.Int64),
        last=pl.col("cost").rank("max").over("pair_id").cast(pl.Int64),
    )
    return _aggregate_groups(rows, accuracy=pl.col("place") == 1, mrr=1 / pl.col("place"))


def random_group_scores(candidates: pl.DataFrame) -> pl.DataFrame:
    """The exact mean scores of a random order of each group (columns: GROUP_SCORES).

    Of n candidates, each place is equally likely: each metric is its mean over the places 1 … n of
    the plausible one, and each candidate's expected discount is the mean discount.

    Source: PRobELM, section 5.1, has the accuracy (9.09 % of 11).

    >>> candidates = pl.DataFrame({
    ...     "pair_id": ["g"] * 2, "relation_id": ["P27"] * 2, "frame": ["2023-11"] * 2,
    ...     "candidate_id": ["g.1", "g.2"], "rank": [1, 2], "is_positive": [True, False],
    ... })
    >>> random_group_scores(candidates).select("accuracy", "mrr").row(0)
    (0.5, 0.75)
    """
    size = pl.len().over("pair_id").cast(pl.Int64)
    reciprocal = (1 / pl.int_range(1, pl.len() + 1)).mean().over("pair_id")
    rows = candidates.with_columns(first=pl.lit(1, pl.Int64), last=size, reciprocal=reciprocal)
    return _aggregate_groups(rows, accuracy=1 / pl.col("last"), mrr=pl.col("reciprocal"))


def _aggregate_groups(rows: pl.DataFrame, accuracy: pl.Expr, mrr: pl.Expr) -> pl.DataFrame:
    """One row per group: the values at its plausible candidate, and its graded NDCG.

    A candidate's places are `first` to `last`.
    """
    rows = rows.with_columns(_mean_discounts(rows), _mean_discounts(rows, CUT))
    of_positive = {
        "accuracy": accuracy,
        "mrr": mrr,
        "ndcg_binary": pl.col("discount"),
        "ndcg_at_3": pl.col("discount_at_3"),
    }
    relevance = (RELEVANCE_OF_RANK_0 - pl.col("rank").cast(pl.Int64)).clip(lower_bound=0)
    best = relevance.sort(descending=True)
    ideal_discount = 1 / (pl.int_range(pl.len()) + 2).log(2)
    positive = pl.col("is_positive")
    return (
        rows.group_by(_GROUP, maintain_order=True)
        .agg(
            ndcg=(relevance * pl.col("discount")).sum() / (best * ideal_discount).sum(),
            **{name: value.filter(positive).first() for name, value in of_positive.items()},
        )
        .select(pl.col(name).cast(dtype) for name, dtype in GROUP_SCORES.items())
    )


def _mean_discounts(rows: pl.DataFrame, cut: int | None = None) -> pl.Series:
    """The mean of 1 / log2(1 + place) over the places `first` to `last`; 0 below `cut`."""
    longest = rows["last"].max()
    places = np.arange(1, (longest if isinstance(longest, int) else 0) + 1)
    discounts: NDArray[np.float64] = 1 / np.log2(places + 1)
    if cut is not None:
        discounts[cut:] = 0
    sums = np.concatenate([[0.0], np.cumsum(discounts)])
    first, last = (rows[name].to_numpy() for name in ("first", "last"))
    means = (sums[last] - sums[first - 1]) / (last - first + 1)
    return pl.Series("discount" if cut is None else f"discount_at_{cut}", means, pl.Float64)


def correlations(
    metrics: pl.DataFrame, between: Literal["setting", "metric"], names: tuple[str, ...]
) -> pl.DataFrame:
    """Correlate each two of the settings (or metrics) `names` (columns: CORRELATIONS).

    Source: PRobELM, section 5.1. The paper does not say what is correlated. Its four numbers
    (.8281, .8672, .8976; .9982) are those of all cells of two groups of columns in Table 2 taken
    together: two prompt types over models × metrics, two metrics over models × prompt types.

    `metrics` has model, setting, metric and value, and may have benchmark, variant and slice: two
    values are compared where all but `between` is the same. `n` counts those pairs. Null: fewer
    than two, or one side is constant.

    >>> metrics = pl.DataFrame({
    ...     "model": ["a", "b", "c"] * 2, "setting": ["statement"] * 3 + ["question"] * 3,
    ...     "metric": "mrr", "value": [0.1, 0.2, 0.3, 0.2, 0.4, 0.6],
    ... })
    >>> correlations(metrics, "setting", ("statement", "question")).rows()
    [('statement', 'question', 1.0, 3)]
    """
    values = metrics.filter(pl.col(between).is_in(names)).drop_nulls("value")
    keys = [name for name in PLACE if name != between and name in values.columns]
    rows = []
    for first, second in combinations(names, 2):
        first_values, second_values = (
            values.filter(pl.col(between) == name).drop(between) for name in (first, second)
        )
        pairs = first_values.join(second_values, on=keys, nulls_equal=True)
        pearson = pairs.select(pl.corr("value", "value_right").fill_nan(None)).item()
        rows.append((first, second, pearson, pairs.height))
    return pl.DataFrame(rows, schema=CORRELATIONS, orient="row")
