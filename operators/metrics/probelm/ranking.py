"""How well a model ranks a group's candidates: accuracy, MRR and NDCG of each group.

A group's candidates are ranked by their cost, ascending. Equal costs are a *tie*: in rank, each
takes the mean of the tie's places; in NDCG, the mean over the tie's orders (which is the mean of
the discounts of its places). scikit-learn's `ndcg_score` does the latter, too.

Source: PRobELM, sections 4.1 and 4.2. The paper is silent about ties.
"""

from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from factsweep.operators.metrics.shared.metric import Metric

Score = Literal["text_perplexity", "answer_sum", "answer_mean"]
_FIRST = "share of groups whose true candidate is the likeliest, in percent"
_ORDER = "how well the ranking agrees with the plausible order, in percent"
_AT_3 = "the same over the three likeliest candidates, in percent"
RANKING = (
    Metric("accuracy", "accuracy", _FIRST, "higher"),
    Metric("mrr", "MRR", "mean of 1 / the rank of the true candidate, in percent", "higher"),
    Metric("ndcg", "NDCG", _ORDER, "higher"),
    Metric("ndcg_binary", better="higher"),
    Metric("ndcg_at_3", "NDCG@3", _AT_3, "higher"),
)
RANKING_METRICS = tuple(metric.name for metric in RANKING)
_GROUP = ("relation_id", "pair_id", "frame")
GROUP_SCORES = pl.Schema(
    dict.fromkeys(_GROUP, pl.String) | dict.fromkeys(RANKING_METRICS, pl.Float64)
)
# The plausible one has 11, its ten alternatives have 10 to 1 (rank 2 to 11 in the file).
RELEVANCE_OF_RANK_0 = 12
CUT = 3


_ENTITY = ("entity_logprob", "entity_n_tokens")
# The columns of the log-probability that is read, and of the tokens that it is a sum of.
COLUMNS_OF: dict[Score, tuple[str, str]] = {
    "text_perplexity": ("logprob", "n_tokens"),
    "answer_sum": _ENTITY,
    "answer_mean": _ENTITY,
}


def costs(scores: pl.DataFrame, score: Score) -> pl.DataFrame:
    """What candidates are ranked by, in nats, the most plausible first: candidate_id, cost.

    `text_perplexity` is the mean negative log-probability of the text's tokens (logprob and
    n_tokens): perplexity is its exponential, which has the same order and may overflow.
    `answer_mean` is that of the entity's tokens (entity_logprob and entity_n_tokens), `answer_sum`
    their sum. Null without a log-probability, where it is no number, or where no token was scored.

    >>> scores = pl.DataFrame(
    ...     {"candidate_id": ["a", "b"], "logprob": [-8.0, -9.0], "n_tokens": [4, 6]}
    ... )
    >>> costs(scores, "text_perplexity").rows()
    [('a', 2.0), ('b', 1.5)]
    """
    logprob, n_tokens = (pl.col(name) for name in COLUMNS_OF[score])
    known = (n_tokens > 0) & logprob.is_not_nan()
    divisor = pl.lit(1) if score == "answer_sum" else n_tokens
    cost = -logprob.cast(pl.Float64) / divisor
    return scores.select("candidate_id", cost=pl.when(known).then(cost))


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
    return _aggregated(rows, accuracy=pl.col("place") == 1, mrr=1 / pl.col("place"))


def random_group_scores(candidates: pl.DataFrame) -> pl.DataFrame:
    """What a random order of each group scores on average, exactly (columns: GROUP_SCORES).

    Of n candidates, each place is as likely as any other: each metric is its mean over the places
    1 … n of the plausible one, and each candidate's expected discount is the mean discount.

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
    return _aggregated(rows, accuracy=1 / pl.col("last"), mrr=pl.col("reciprocal"))


def _aggregated(rows: pl.DataFrame, accuracy: pl.Expr, mrr: pl.Expr) -> pl.DataFrame:
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
