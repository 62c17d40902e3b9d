"""KAMEL: precision, recall and F1 of sets of answers, over queries and relations; dates in years.

A relation's precision and recall are the means over its queries, its F1 the harmonic mean of the
two. Overall precision and recall are the means over relations, and **overall F1 is the harmonic
mean of overall precision and recall**, as the tables of the KAMEL paper are made.

Source: KAMEL, section 3.2, "Evaluation Metrics", and Table 2. Intervals: module `bootstrap`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple, get_args

import numpy as np
import polars as pl

from factsweep.operators.datasets.kamel import is_literal
from factsweep.operators.matching.answer_set import Matching
from factsweep.operators.metrics.answer_sets import Labels, precision_recall
from factsweep.operators.metrics.shared import bootstrap
from factsweep.operators.metrics.shared.bootstrap import (
    UNDEFINED,
    BootstrapResult,
    FloatArray,
    estimate,
    relations,
)
from factsweep.operators.metrics.shared.rows import Metric, Row, count_scored_pairs, table
from factsweep.operators.metrics.year_errors import YEAR_ERROR_MEAN, YEAR_ERROR_MEDIAN, year_rows

PRECISION = Metric("precision", "P", "share of the given answers that are right", "higher")
RECALL = Metric("recall", "R", "share of the right answers that were given", "higher")
F1 = Metric("f1", "F1", "harmonic mean of precision and recall", "higher")
F1_RELATION_MEAN = Metric("f1_relation_mean", heading="", better="higher")
_SAYS = "what always giving the relation's commonest answer would score"
BASELINE_F1 = Metric("baseline_f1", "F1 of the most frequent answer", _SAYS)
# In the order of their columns.
METRICS = (
    *(PRECISION, RECALL, F1, F1_RELATION_MEAN, BASELINE_F1),
    *(YEAR_ERROR_MEAN, YEAR_ERROR_MEDIAN),
)

# T-REx's relations in LAMA (Petroni et al. 2019); KAMEL has all of them but P530.
# fmt: off
LAMA_RELATIONS = (
    "P17", "P19", "P20", "P27", "P30", "P31", "P36", "P37", "P39", "P47", "P101",
    "P103", "P106", "P108", "P127", "P131", "P136", "P138", "P140", "P159", "P176", "P178",
    "P190", "P264", "P276", "P279", "P361", "P364", "P407", "P413", "P449", "P463", "P495",
    "P527", "P530", "P740", "P937", "P1001", "P1303", "P1376", "P1412",
)
# fmt: on


class _Slice(NamedTuple):
    """A slice's name (null: everything), its queries (relation_id, pair_id), and its averaging.

    `over_queries`: the authors' scorer averages it over its queries, not over relations.
    """

    name: str | None
    queries: pl.DataFrame
    over_queries: bool = False


def kamel(
    answers: pl.DataFrame,
    pairs: pl.DataFrame,
    *,
    seed: int,
    split: str = "test",
    n_rounds: int = 1000,
) -> pl.DataFrame:
    """Compute every KAMEL metric: one row per number (table ROWS).

    `answers` has pair_id and text, `pairs` the columns of its canonical table; the queries of
    `split` are asked, those of train give the baseline. A query without an answer counts in
    `n_failed` and is left out of every mean. Each slice is measured as if it were the whole set;
    with `matching=paper`, slices by cardinality and kind are averaged over queries, as the authors'
    are.

    Both ways of matching and both sets of labels are computed: `variant` is null for strict
    matching with all labels, else `matching=paper`, `labels=rdf` or both. Intervals are of 95 %.

    Source: KAMEL, sections 3.2 and 4.2.
    """
    queries = pairs.filter(pl.col("split") == split)
    train = pairs.filter(pl.col("split") == "train")
    sources = {"": answers, "baseline_": most_frequent_answers(train, queries)}
    scores: dict[str, dict[str | None, pl.DataFrame]] = {}
    for prefix, texts in sources.items():
        scores[prefix] = {}
        for matching, labels in product(get_args(Matching), get_args(Labels)):
            parts = ["matching=paper"] * (matching == "paper") + ["labels=rdf"] * (labels == "rdf")
            table_of = precision_recall(texts, queries, matching=matching, labels=labels)
            scores[prefix][",".join(parts) or None] = table_of
    rows: list[Row] = []
    for part, (prefix, tables) in product(_slices(queries), scores.items()):
        rows += _rows(tables, part, prefix, seed, n_rounds)
    return table(rows + year_rows(answers, queries, seed, n_rounds))


def _slices(asked_pairs: pl.DataFrame) -> Iterator[_Slice]:
    """The slices that have queries; relations are cut out of the whole, not listed here."""
    ids = pl.col("objects").list.eval(is_literal(pl.element().struct.field("object_id")))
    queries = asked_pairs.select(
        "relation_id",
        "pair_id",
        cardinality=pl.col("objects").list.len(),
        kind=pl.when(ids.list.all()).then(pl.lit("literal")).otherwise(pl.lit("entity")),
    )
    yield _Slice(None, queries)
    for name in ("cardinality", "kind"):
        for value in queries[name].unique().sort():
            yield _Slice(f"{name}={value}", queries.filter(pl.col(name) == value), True)
    lama = queries.filter(pl.col("relation_id").is_in(LAMA_RELATIONS))
    if not lama.is_empty():
        yield _Slice("relations=lama", lama)


def _rows(
    tables: Mapping[str | None, pl.DataFrame], part: _Slice, prefix: str, seed: int, n_rounds: int
) -> Iterator[Row]:
    """The rows of a slice by variant; that of everything also gives those of the relations."""
    scores_in_slice = [
        scores.join(part.queries, on="pair_id", how="semi", maintain_order="left")
        for scores in tables.values()
    ]
    counts = count_scored_pairs(part.queries, scores_in_slice[0])
    over_relations = over_queries = macros(scores_in_slice, seed=seed, n_rounds=n_rounds)
    if part.over_queries:
        pooled = [scores.with_columns(relation_id=pl.lit("all")) for scores in scores_in_slice]
        over_queries = macros(pooled, seed=seed, n_rounds=n_rounds)
    for variant, *numbers in zip(tables, over_relations, over_queries, strict=True):
        macro = numbers[(variant or "").startswith("matching=paper")]
        for metric, bootstrapped in macro._asdict().items():
            name, by_relation = prefix + metric, metric != F1_RELATION_MEAN.name
            if by_relation and part.name is None:
                yield from counts.rows(name, bootstrapped, variant)
            elif by_relation or not prefix:
                yield counts.row(name, bootstrapped.overall, variant=variant, part=part.name)


def most_frequent_answers(train: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
    """Answer each of the `queries` with its relation's most frequent answer: pair_id, text.

    An answer counts once per query; of equally frequent ones, the first by its text is taken.

    Source: KAMEL, section 4.2, "Detailed Analysis" (an F1 of 9.7 %).

    >>> shown = [[{"labels": [each]}] for each in ("Asia", "Antarctica", "Antarctica")]
    >>> ids = {"relation_id": ["P30"] * 3, "pair_id": ["t1", "t2", "t3"]}
    >>> asked = pl.DataFrame({"relation_id": ["P30"], "pair_id": ["q1"]})
    >>> most_frequent_answers(pl.DataFrame({**ids, "objects": shown}), asked).rows()
    [('q1', 'Antarctica')]
    """
    labels = pl.col("objects").list.eval(pl.element().struct.field("labels").list.first())
    label_lists = train.select("relation_id", text=labels.list.unique())
    counts = label_lists.explode("text").drop_nulls().group_by("relation_id", "text").len()
    ranked = counts.sort("relation_id", "len", "text", descending=[False, True, False])
    best = ranked.unique("relation_id", keep="first", maintain_order=True)
    return queries.join(best, on="relation_id", maintain_order="left").select("pair_id", "text")


class MacroAverages(NamedTuple):
    """The four numbers; `f1_relation_mean`, the mean of the relations' F1, has no slices."""

    precision: BootstrapResult
    recall: BootstrapResult
    f1: BootstrapResult
    f1_relation_mean: BootstrapResult


def macros(
    tables: Sequence[pl.DataFrame], *, seed: int, n_rounds: int = 1000
) -> list[MacroAverages]:
    """Average each table of scores of queries (relation_id, pair_id, precision, recall).

    The tables have the same queries; their rounds are drawn once for all.
    """
    if tables[0].is_empty():
        return [
            MacroAverages(*[BootstrapResult(UNDEFINED, {})] * len(MacroAverages._fields))
            for _ in tables
        ]
    degrees, rounds = {}, []
    for parts in zip(*(relations(scores, "pair_id") for scores in tables), strict=True):
        relation, n = parts[0][0], parts[0][1].height
        scores = [rows.select("precision", "recall").to_numpy() for _, rows in parts]
        rounds.append(bootstrap.resampled_sums(np.hstack(scores), seed, relation, n_rounds).T / n)
        degrees[relation] = n - 1
    means = np.stack(rounds, axis=1)  # (table, precision or recall) × relation × rounds
    return [_macro(degrees, *means[place : place + 2]) for place in range(0, 2 * len(tables), 2)]


def _macro(degrees: dict[str, int], precision: FloatArray, recall: FloatArray) -> MacroAverages:
    """A table's numbers from relations' means in each round; `degrees`: their queries less one."""
    f1 = harmonic_mean(precision, recall)
    of_all = sum(degrees.values())

    def summarise_rounds(overall: FloatArray, of_relations: FloatArray) -> BootstrapResult:
        rounds_by_relation = zip(degrees.items(), of_relations, strict=True)
        by_relation = {name: estimate(rounds, n) for (name, n), rounds in rounds_by_relation}
        return BootstrapResult(estimate(overall, of_all), by_relation)

    means = precision.mean(axis=0), recall.mean(axis=0)
    return MacroAverages(
        summarise_rounds(means[0], precision),
        summarise_rounds(means[1], recall),
        summarise_rounds(harmonic_mean(*means), f1),
        BootstrapResult(estimate(f1.mean(axis=0), of_all), {}),
    )


def harmonic_mean(a: FloatArray, b: FloatArray) -> FloatArray:
    """2ab / (a + b); 0 where both are 0."""
    total = a + b
    return np.divide(2 * a * b, total, out=np.zeros_like(total), where=total > 0)
