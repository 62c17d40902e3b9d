"""Kinds of confidence in a greedy answer, from stored answers, and a comparison of the kinds.

- `samples`: the share of sampled answers that match the greedy one (table `calibration`);
- `sequence`: exp(Σ log p) of the answer's tokens, without the one that ends it;
- `sequence_mean`: exp of their mean log p;
- `entropy,cluster=…`: minus the semantic entropy of the samples, of which only the order counts;
- `p_true`: p(True) / (p(True) + p(False)) behind a further question about the answer;
- `verbalised`: the number from 0 to 100 that the model gives when asked, as a share.

All but `samples` are rows of the table `confidences`, null where a kind is undefined.

Sources: Farquhar et al. 2024 (discrete semantic entropy); Kadavath et al. 2022 (P(True)); the
project's specification, *Uncertainty from what is stored*.
"""

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import polars as pl

from factsweep.operators.matching.lemmas import matches
from factsweep.operators.metrics.belief.calibration import (
    BINS,
    RANKINGS,
    Match,
    bins,
    ranked_rounds,
)
from factsweep.operators.metrics.shared.bootstrap import estimate
from factsweep.operators.metrics.shared.rows import Metric
from factsweep.operators.schemas import SETTING, columns

SAMPLES = "samples"
CLUSTERS = {"entropy,cluster=equal": "equal", "entropy,cluster=match": "match"}
CONFIDENCES = columns("confidences")
DIFFERENCES = columns("confidence_differences", *SETTING)
SEMANTIC_ENTROPY = Metric(
    "semantic_entropy",
    "Semantic entropy",
    "entropy of the clusters of sampled answers, in nats; 0 and more",
    range=(0, np.inf),
)
N_CLUSTERS = Metric(
    "n_clusters", "Clusters", "number of different sampled answers; 1 and more", range=(1, np.inf)
)
_VALUES = columns("confidences", "relation_id", "pair_id", "correct")


def variant_of(kind: str) -> str | None:
    """The column `variant` of a kind's rows; null: of `samples`, the default."""
    return None if kind == SAMPLES else f"confidence={kind}"


def confidence_kinds(
    greedy: pl.DataFrame,
    samples: pl.DataFrame,
    tables: Mapping[str, pl.DataFrame],
    match: Match = matches,
) -> pl.DataFrame:
    """Give each prompt its confidence of each kind but `samples` (columns: CONFIDENCES).

    `greedy` has one row per prompt: prompt_id, relation_id, pair_id, text and correct. `samples`
    has prompt_id and key, one row per sampled answer; `tables` the answers decoded once more, by
    name: `canary` with log-probabilities, `p_true` and `verbalised` with the reply to a question
    about them. An answer that changed has no such confidence.
    """
    values = pl.concat([_entropies(samples, match), _of_repeated(greedy, tables)])
    ids = greedy.select("prompt_id", "relation_id", "pair_id", "correct")
    rows = values.join(ids, on="prompt_id").sort("kind", "prompt_id")
    return rows.select(pl.col(name).cast(dtype) for name, dtype in CONFIDENCES.items())


def cluster_sizes(samples: pl.DataFrame, match: Match | None = None) -> pl.DataFrame:
    r"""Count the samples in each cluster of each prompt: prompt_id, n.

    Equal keys are one cluster, and empty answers (null) are equal. With `match`, clusters with
    matching keys are one, directly or through others.

    >>> keys = ["\x1fguitar\x1f", "\x1fa\x1fguitar\x1f", "\x1fpiano\x1f", "\x1fguitar\x1f"]
    >>> samples = pl.DataFrame({"prompt_id": "p", "key": keys})
    >>> [sorted(cluster_sizes(samples, link)["n"]) for link in (None, matches)]
    [[1, 1, 2], [1, 3]]
    """
    sizes = samples.group_by("prompt_id", "key").agg(n=pl.len())
    if match is None:
        return sizes.select("prompt_id", "n")
    from scipy.sparse import coo_array  # slow to import
    from scipy.sparse.csgraph import connected_components

    nodes = sizes.with_row_index("node")
    links = nodes.lazy().join(nodes.lazy(), on="prompt_id", suffix="_other")
    links = links.filter(pl.col("node") < pl.col("node_other"))
    linked = links.filter(match(pl.col("key"), pl.col("key_other"))).select("node", "node_other")
    ends = linked.collect(engine="streaming").to_numpy().T
    graph = coo_array((np.ones(ends.shape[1]), ends), shape=(nodes.height, nodes.height))
    cluster = pl.Series("cluster", connected_components(graph, directed=False)[1])
    merged = nodes.with_columns(cluster).group_by("prompt_id", "cluster").agg(pl.sum("n"))
    return merged.select("prompt_id", "n")


def _entropies(samples: pl.DataFrame, match: Match) -> pl.DataFrame:
    """Σ p ln p over each prompt's clusters, p a cluster's share of the samples (columns: _VALUES).

    The terms are sorted, so that no order of samples changes the last digit of a sum.
    """
    share = pl.col("n") / pl.sum("n")
    values = {"confidence": (share * share.log()).sort().sum(), "n_clusters": pl.len()}
    tables = (
        cluster_sizes(samples, match if cluster == "match" else None)
        .group_by("prompt_id")
        .agg(**values)
        .with_columns(kind=pl.lit(kind))
        for kind, cluster in CLUSTERS.items()
    )
    return pl.concat([_VALUES.to_frame(), *map(_as_values, tables)])


def _of_repeated(greedy: pl.DataFrame, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The kinds that are known of answers decoded once more (columns: _VALUES)."""
    logprob = pl.col("logprob").cast(pl.Float64)
    mean = pl.when(pl.col("n_tokens") > 0).then(logprob / pl.col("n_tokens"))
    odds = (pl.col("logprob_false") - pl.col("logprob_true")).exp()
    kinds = {
        "canary": {"sequence": logprob.exp(), "sequence_mean": mean.exp()},
        "p_true": {"p_true": 1 / (1 + odds)},
        "verbalised": {"verbalised": read_percent(pl.col("reply"))},
    }
    first = greedy.select("prompt_id", first_text="text")
    values = [_VALUES.to_frame()]
    for table, expressions in kinds.items():
        rows = tables[table].join(first, on="prompt_id")
        is_same = pl.col("text") == pl.col("first_text")
        defined = {kind: pl.when(is_same).then(value) for kind, value in expressions.items()}
        wide = rows.select("prompt_id", **defined)
        long = wide.unpivot(index="prompt_id", variable_name="kind", value_name="confidence")
        values.append(_as_values(long.with_columns(n_clusters=pl.lit(None))))
    return pl.concat(values)


def read_percent(reply: pl.Expr) -> pl.Expr:
    """The one number of a reply's first line, from 0 to 100, as a share; null: none, or several.

    >>> texts = [" 90%", "about 75.", "25/100", "60 to 80", "101", "1,000", "-5", "sure", None]
    >>> pl.DataFrame({"reply": texts}).select(read_percent(pl.col("reply")))["reply"].to_list()
    [0.9, 0.75, 0.25, None, None, None, None, None, None]
    """
    line = reply.str.extract(r"^\s*([^\r\n]*)").str.replace(r"\s*(?:/|out of)\s*100\b", "")
    numbers = line.str.extract_all(r"[-−]?[\d.,]*\d").list.unique()
    single = pl.when(numbers.list.len() == 1).then(numbers.list.first())
    number = single.str.extract(r"^(\d{1,3}(?:[.,]\d{1,2})?)$").str.replace(",", ".", literal=True)
    value = number.cast(pl.Float64, strict=False)
    return pl.when(value <= 100).then(value / 100).name.keep()


def _as_values(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(pl.col(name).cast(dtype) for name, dtype in _VALUES.items())


def by_kind(calibration: pl.DataFrame, confidences: pl.DataFrame) -> Mapping[str, pl.DataFrame]:
    """The prompts that have a confidence of each kind, `samples` first; kinds with any.

    `calibration` has the confidences of samples, `confidences` those of the other kinds.
    """
    kinds = confidences["kind"].unique().sort()
    tables = {SAMPLES: calibration, **{kind: confidences.filter(kind=kind) for kind in kinds}}
    defined = {kind: rows.drop_nulls("confidence") for kind, rows in tables.items()}
    return {kind: rows for kind, rows in defined.items() if not rows.is_empty()}


def bins_by_kind(calibration: pl.DataFrame, confidences: pl.DataFrame, n_bins: int) -> pl.DataFrame:
    """The bins of each kind of confidence (columns: BINS, and variant)."""
    variant = pl.Schema({"variant": pl.String()})
    tables = [
        bins(rows, n_bins).with_columns(variant=pl.lit(variant_of(kind), pl.String))
        for kind, rows in by_kind(calibration, confidences).items()
    ]
    return pl.concat([pl.Schema({**BINS, **variant}).to_frame(), *tables])


def confidence_differences(
    calibration: pl.DataFrame, confidences: pl.DataFrame, *, seed: int, n_rounds: int
) -> pl.DataFrame:
    """Compare each two kinds of confidence in the answers that have both (columns: DIFFERENCES).

    difference = first − second of each metric of RANKINGS, with its 95 % interval: each round
    takes the same prompts, one of each fact, for both kinds.
    """
    tables = by_kind(calibration, confidences)
    rounds = {}
    rows = []
    for kinds in combinations(tables, 2):
        ids = [tables[kind].select("prompt_id") for kind in kinds]
        common = ids[0].join(ids[1], on="prompt_id").sort("prompt_id")
        key = tuple(common["prompt_id"])
        for kind in kinds:
            if (kind, key) not in rounds:
                common_rows = tables[kind].join(common, on="prompt_id", how="semi")
                rounds[kind, key] = ranked_rounds(common_rows, seed, n_rounds, n_bins=None)
        for metric in RANKINGS:
            first, second = (rounds[kind, key][metric] for kind in kinds)
            values = (estimate(values[:1]).value for values in (first, second))
            rows.append((metric, *kinds, *values, *estimate(first - second), common.height))
    return pl.DataFrame(rows, DIFFERENCES, orient="row")
