"""All KAMEL metrics of one model in one setting, as rows of the metrics table."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple, get_args

import polars as pl

from factsweep.operators.datasets.kamel import DATE, is_literal
from factsweep.operators.matching.answer_set import Matching
from factsweep.operators.metrics.kamel import macro, year_error
from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.rows import Row, counted_pairs, table


def most_frequent_answers(train: pl.DataFrame, asked: pl.DataFrame) -> pl.DataFrame:
    """Answer each query of `asked` with its relation's most frequent answer: pair_id, text.

    An answer counts once per query; of equally frequent ones, the first by its text is taken.

    Source: KAMEL, section 4.2, "Detailed Analysis" (an F1 of 9.7 %).

    >>> shown = [[{"labels": [each]}] for each in ("Asia", "Antarctica", "Antarctica")]
    >>> ids = {"relation_id": ["P30"] * 3, "pair_id": ["t1", "t2", "t3"]}
    >>> asked = pl.DataFrame({"relation_id": ["P30"], "pair_id": ["q1"]})
    >>> most_frequent_answers(pl.DataFrame({**ids, "objects": shown}), asked).rows()
    [('q1', 'Antarctica')]
    """
    labels = pl.col("objects").list.eval(pl.element().struct.field("labels").list.first())
    shown = train.select("relation_id", text=labels.list.unique()).explode("text").drop_nulls()
    counted = shown.group_by("relation_id", "text").len()
    counted = counted.sort("relation_id", "len", "text", descending=[False, True, False])
    best = counted.unique("relation_id", keep="first", maintain_order=True)
    return asked.join(best, on="relation_id", maintain_order="left").select("pair_id", "text")


_SAYS = "what always giving the relation's commonest answer would score"
BASELINE_F1 = Metric("baseline_f1", "F1 of the most frequent answer", _SAYS)
# In the order of their columns.
METRICS = (
    *(macro.PRECISION, macro.RECALL, macro.F1, macro.F1_RELATION_MEAN, BASELINE_F1),
    *(year_error.YEAR_ERROR_MEAN, year_error.YEAR_ERROR_MEDIAN),
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


class _Part(NamedTuple):
    """A slice: its name (null: everything) and the queries in it (relation_id, pair_id).

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

    `answers` has pair_id and text, `pairs` the columns of its canonical table; those of `split` are
    asked, those of train give the baseline. A query without an answer counts in `n_failed` and is
    left out of every mean. Each slice is measured as if it were the whole set; with
    `matching=paper`, those by cardinality and kind are averaged over queries, as the authors' are.

    Both ways of matching and both sets of labels are there: `variant` is null for strict matching
    with all labels, else `matching=paper`, `labels=rdf` or both. Intervals are of 95 %.

    Source: KAMEL, sections 3.2 and 4.2; each metric's module says how it departs from them.
    """
    asked = pairs.filter(pl.col("split") == split)
    train = pairs.filter(pl.col("split") == "train")
    sources = {"": answers, "baseline_": most_frequent_answers(train, asked)}
    compared = list(product(get_args(Matching), get_args(macro.Labels)))
    scores = {
        prefix: {
            _variant(how, of): macro.precision_recall(given, asked, matching=how, labels=of)
            for how, of in compared
        }
        for prefix, given in sources.items()
    }
    rows: list[Row] = []
    for part, (prefix, tables) in product(_parts(asked), scores.items()):
        rows += _rows(tables, part, prefix, seed, n_rounds)
    return table(rows + _year_rows(answers, asked, seed, n_rounds))


def _variant(matching: Matching, labels: macro.Labels) -> str | None:
    parts = ["matching=paper"] * (matching == "paper") + ["labels=rdf"] * (labels == "rdf")
    return ",".join(parts) or None


def _parts(asked: pl.DataFrame) -> Iterator[_Part]:
    """The slices that have queries; relations are cut out of the whole, not listed here."""
    ids = pl.col("objects").list.eval(is_literal(pl.element().struct.field("object_id")))
    queries = asked.select(
        "relation_id",
        "pair_id",
        cardinality=pl.col("objects").list.len(),
        kind=pl.when(ids.list.all()).then(pl.lit("literal")).otherwise(pl.lit("entity")),
    )
    yield _Part(None, queries)
    for name in ("cardinality", "kind"):
        for value in queries[name].unique().sort():
            yield _Part(f"{name}={value}", queries.filter(pl.col(name) == value), True)
    lama = queries.filter(pl.col("relation_id").is_in(LAMA_RELATIONS))
    if not lama.is_empty():
        yield _Part("relations=lama", lama)


def _rows(
    tables: Mapping[str | None, pl.DataFrame], part: _Part, prefix: str, seed: int, n_rounds: int
) -> Iterator[Row]:
    """The rows of a slice by variant; that of everything also gives those of the relations."""
    mine = [
        scores.join(part.queries, on="pair_id", how="semi", maintain_order="left")
        for scores in tables.values()
    ]
    counts = counted_pairs(part.queries, mine[0])
    found = pooled = macro.macros(mine, seed=seed, n_rounds=n_rounds)
    if part.over_queries:
        together = [scores.with_columns(relation_id=pl.lit("all")) for scores in mine]
        pooled = macro.macros(together, seed=seed, n_rounds=n_rounds)
    for variant, *both in zip(tables, found, pooled, strict=True):
        numbers = both[(variant or "").startswith("matching=paper")]
        for metric, each in numbers._asdict().items():
            by_relation = metric != macro.F1_RELATION_MEAN.name
            if by_relation and part.name is None:
                yield from counts.rows(prefix + metric, each, variant)
            elif by_relation or not prefix:
                yield counts.row(prefix + metric, each.overall, variant=variant, part=part.name)


def _year_rows(answers: pl.DataFrame, asked: pl.DataFrame, seed: int, n_rounds: int) -> list[Row]:
    """The error in years; `n_failed` counts the answers without a year too."""
    dates = asked.filter(
        pl.col("objects").list.eval(pl.element().struct.field("object_id") == DATE).list.any()
    )
    if dates.is_empty():
        return []
    errors = year_error.year_errors(answers, dates).drop_nulls("error")
    counts = counted_pairs(dates, errors)
    mean, median = year_error.year_error(errors, seed=seed, n_rounds=n_rounds)
    return [
        *counts.rows(year_error.YEAR_ERROR_MEAN.name, mean),
        *counts.rows(year_error.YEAR_ERROR_MEDIAN.name, median),
    ]
