"""KAMEL: precision, recall and F1 of sets of answers, over queries and relations; dates in years.

A relation's precision and recall are the means over its queries, its F1 the harmonic mean of the
two. Overall precision and recall are the means over relations, and **overall F1 is the harmonic
mean of overall precision and recall**, as the tables of the KAMEL paper are made.

Source: KAMEL, section 3.2, "Evaluation Metrics", and Table 2. Intervals: module `bootstrap`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import inf
from typing import Literal, NamedTuple, get_args

import numpy as np
import polars as pl

from factsweep.operators.datasets.kamel import DATE, find_marked_labels, is_literal, read_answers
from factsweep.operators.matching.answer_set import Matching, answer_set
from factsweep.operators.matching.lemmas import SEPARATOR as LEMMA_SEPARATOR
from factsweep.operators.matching.lemmas import key
from factsweep.operators.metrics.shared import bootstrap
from factsweep.operators.metrics.shared.bootstrap import (
    UNDEFINED,
    BootstrapResult,
    FloatArray,
    IntArray,
    estimate,
    relations,
)
from factsweep.operators.metrics.shared.rows import (
    Metric,
    Row,
    count_scored_pairs,
    pair_terms,
    ratio_rows,
    table,
)

PRECISION = Metric("precision", "P", "share of the given answers that are right", "higher")
RECALL = Metric("recall", "R", "share of the right answers that were given", "higher")
F1 = Metric("f1", "F1", "harmonic mean of precision and recall", "higher")
F1_RELATION_MEAN = Metric("f1_relation_mean", heading="", better="higher")
_SAYS = "what always giving the relation's commonest answer would score"
BASELINE_F1 = Metric("baseline_f1", "F1 of the most frequent answer", _SAYS)
YEAR_ERROR_MEAN = Metric("year_error_mean", heading="", better="lower", range=(0, inf))
YEAR_ERROR_MEDIAN = Metric("year_error_median", heading="", better="lower", range=(0, inf))
# In the order of their columns.
METRICS = (
    *(PRECISION, RECALL, F1, F1_RELATION_MEAN, BASELINE_F1),
    *(YEAR_ERROR_MEAN, YEAR_ERROR_MEDIAN),
)
Labels = Literal["all", "rdf"]

# T-REx's relations in LAMA (Petroni et al. 2019); KAMEL has all of them but P530.
# fmt: off
LAMA_RELATIONS = (
    "P17", "P19", "P20", "P27", "P30", "P31", "P36", "P37", "P39", "P47", "P101",
    "P103", "P106", "P108", "P127", "P131", "P136", "P138", "P140", "P159", "P176", "P178",
    "P190", "P264", "P276", "P279", "P361", "P364", "P407", "P413", "P449", "P463", "P495",
    "P527", "P530", "P740", "P937", "P1001", "P1303", "P1376", "P1412",
)
# fmt: on
_FIRST_ANSWER = r"^[;\s]*([^;%\r\n]*)"  # an answer that is empty is none
# Three or four digits anywhere; fewer only where nothing else is said ("44 BC", not "16 May").
_YEAR = r"(?:^|[^0-9])([0-9]{3,4})(?:[^0-9]|$)"
_EARLY_YEAR = r"^(?:AD *|-)?([0-9]{1,2})(?: *(?:AD|B?\.?C\.?E?\.?))?\.?$"
_BEFORE_CHRIST = r"^-|[0-9] *(?:BC|BCE|B\.C\.)"


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
    return table(rows + _year_rows(answers, queries, seed, n_rounds))


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


def _year_rows(answers: pl.DataFrame, queries: pl.DataFrame, seed: int, n_rounds: int) -> list[Row]:
    """The error in years; `n_failed` counts the answers without a year too."""
    dates = queries.filter(
        pl.col("objects").list.eval(pl.element().struct.field("object_id") == DATE).list.any()
    )
    if dates.is_empty():
        return []
    errors = year_errors(answers, dates)
    counts, terms = (
        count_scored_pairs(dates, errors),
        pair_terms(errors, pl.mean("error")),
    )
    return [
        *ratio_rows(YEAR_ERROR_MEAN.name, terms, counts, seed=seed, n_rounds=n_rounds),
        *counts.rows(YEAR_ERROR_MEDIAN.name, _medians(terms, seed, n_rounds)),
    ]


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


def precision_recall(
    answers: pl.DataFrame,
    pairs: pl.DataFrame,
    *,
    matching: Matching = "strict",
    labels: Labels = "all",
) -> pl.DataFrame:
    """Score each query: one row per pair that has an answer, in the order of `pairs`.

    `answers` has pair_id and text, `pairs` the columns of its canonical table. `n_answers` counts
    the distinct answers given, `n_gold` the right ones, `n_found` the right ones that were given:
    as many as can be matched with a given answer **each of its own**, so that neither share exceeds
    1 where two right answers have a label in common. Nothing given: both shares are 0.

    `labels="rdf"` compares with the first label of a right answer alone; that of a literal is its
    first alternative, as in the authors' scorer. Strict matching drops special characters, except
    where they distinguish labels of `pairs` in one relation (`find_marked_labels`).

    Source: KAMEL, section 3.2, "Evaluation Metrics".

    >>> answers = pl.DataFrame({"pair_id": ["t1"], "text": ["English; Spanish; French; Italian%"]})
    >>> gold = ["English", "Spanish", "Hebrew", "Japanese", "French"]
    >>> objects = [{"object_id": None, "labels": [label]} for label in gold]
    >>> pairs = pl.DataFrame({"relation_id": ["P1412"], "pair_id": ["t1"], "objects": [objects]})
    >>> precision_recall(answers, pairs).drop("relation_id").row(0)
    ('t1', 4, 5, 3, 0.75, 0.6)
    """
    answered_ids = answers.drop_nulls("text").select("pair_id")
    answered_pairs = pairs.join(answered_ids, on="pair_id", how="semi")
    relation_of_pair = answered_pairs.select("pair_id", "relation_id")
    texts = answers.join(relation_of_pair, on="pair_id").select("relation_id", "pair_id", "text")
    apart = find_marked_labels(pairs)
    answered = _split(texts, apart, matching).select("pair_id", "answer")
    gold = _split(_labels(answered_pairs, labels), apart, matching)
    gold = gold.select("pair_id", "gold", "answer")
    # An empty answer is never right, though "%" as a label would leave one too.
    n_found = _count_matched(answered, gold.filter(pl.col("answer") != ""))
    n_answers = answered.group_by("pair_id").len("n_answers")
    counts = answered_pairs.join(n_answers, on="pair_id", how="left", maintain_order="left")
    counts = counts.join(n_found, on="pair_id", how="left", maintain_order="left").select(
        "relation_id",
        "pair_id",
        n_answers=pl.col("n_answers").fill_null(0).cast(pl.Int64),
        n_gold=pl.col("objects").list.len().cast(pl.Int64),
        n_found=pl.col("n_found").fill_null(0),
    )
    return counts.with_columns(
        precision=pl.col("n_found") / pl.max_horizontal("n_answers", pl.lit(1)),
        recall=pl.col("n_found") / pl.col("n_gold"),
    )


def mark_complete(answers: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """The answers with `correct`: all right answers of the query are given, and nothing else.

    `answers` has pair_id and text, any number of rows per pair; `pairs` has all queries, whose
    labels tell apart what strict matching compares.

    >>> objects = [{"object_id": None, "labels": ["Oslo"]}, {"object_id": None, "labels": ["Rome"]}]
    >>> pairs = pl.DataFrame({"relation_id": ["P1"], "pair_id": ["t"], "objects": [objects],
    ...     "split": ["test"]})
    >>> texts = ["Rome; Oslo%", "Rome%", "Rome; Oslo; Lima%"]
    >>> answers = pl.DataFrame({"pair_id": "t", "text": texts})
    >>> mark_complete(answers, pairs)["correct"].to_list()
    [True, False, False]
    """
    queries = asked_queries(pairs, answers)
    # Each distinct text is the answer to a query of its own, beside the queries themselves.
    distinct = answers.select("pair_id", "text").unique(maintain_order=True)
    copy_id = pl.format("{}\x1f{}", "pair_id", pl.int_range(pl.len()))
    distinct = distinct.with_columns(copy_id=copy_id)
    copies = distinct.join(queries, on="pair_id", maintain_order="left")
    copies = copies.with_columns(pair_id="copy_id")
    scores = precision_recall(
        copies.select("pair_id", "text"), pl.concat([queries, copies.select(queries.columns)])
    )
    is_complete = (pl.col("precision") == 1) & (pl.col("recall") == 1)
    complete = scores.select(copy_id="pair_id", correct=is_complete)
    marks = distinct.join(complete, on="copy_id", how="left").drop("copy_id")
    rows = answers.join(marks, on=["pair_id", "text"], how="left", maintain_order="left")
    return rows.with_columns(pl.col("correct").fill_null(value=False))


def asked_queries(pairs: pl.DataFrame, answers: pl.DataFrame) -> pl.DataFrame:
    """All queries of the split that was asked: labels of unanswered ones distinguish others."""
    splits = pairs.join(answers, on="pair_id", how="semi")["split"].unique()
    return pairs.filter(pl.col("split").is_in(splits.implode(), nulls_equal=True))


def add_set_keys(answers: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """The answers with `key`: their set in order, a separator around each; null: none.

    `answers` has relation_id, pair_id and text; `pairs` has all queries.
    """
    on = ["relation_id", "text"]
    texts = answers.select(on).unique().with_row_index("set_id")
    sets = read_answers(texts, find_marked_labels(asked_queries(pairs, answers)))
    keys = sets.group_by("set_id").agg(key=pl.col("answer").sort()).with_columns(key(pl.col("key")))
    texts = texts.join(keys, on="set_id", how="left").drop("set_id")
    return answers.join(texts, on=on, how="left", maintain_order="left", nulls_equal=True)


def sets_match(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    r"""Whether one set of answers has all of the other (keys of `add_set_keys`); False for null.

    >>> keys = pl.DataFrame({"a": ["\x1fx\x1fy\x1f", "\x1fx\x1f"], "b": ["\x1fy\x1f", None]})
    >>> keys.select(sets_match(pl.col("a"), pl.col("b"))).to_series().to_list()
    [True, False]
    """
    left, right = (
        keys.str.strip_chars(LEMMA_SEPARATOR).str.split(LEMMA_SEPARATOR) for keys in (a, b)
    )
    n_only = (left.list.set_difference(right), right.list.set_difference(left))
    return (
        pl.min_horizontal(only.list.len() for only in n_only).eq(0)
        & a.is_not_null()
        & b.is_not_null()
    )


def _labels(pairs: pl.DataFrame, labels: Labels) -> pl.DataFrame:
    """One row per label of a right answer: relation_id, pair_id, gold (its place), text."""
    names = pl.col("objects").struct.field("labels")
    objects = pairs.select("relation_id", "pair_id", "objects").explode("objects")
    return objects.select(
        "relation_id",
        "pair_id",
        gold=pl.int_range(pl.len()).over("pair_id"),
        text=names.list.head(1) if labels == "rdf" else names,
    ).explode("text")


def _split(texts: pl.DataFrame, apart: pl.DataFrame, matching: Matching) -> pl.DataFrame:
    """The distinct answers in each text, one row per answer."""
    if matching == "strict":
        return read_answers(texts, apart)
    answers = texts.select(pl.exclude("text"), answer=answer_set(pl.col("text")))
    return answers.explode("answer").drop_nulls("answer").unique()


def _count_matched(answered: pl.DataFrame, gold: pl.DataFrame) -> pl.DataFrame:
    """pair_id, n_found: right answers that each have a given answer of their own, if any has."""
    hits = answered.join(gold, on=["pair_id", "answer"])
    is_disputed = pl.col("gold").n_unique().over("pair_id", "answer").max().over("pair_id") > 1
    simple = hits.filter(~is_disputed).group_by("pair_id")
    counts = simple.agg(n_found=pl.col("gold").n_unique().cast(pl.Int64))
    rows = []
    for pair_hits in hits.filter(is_disputed).partition_by("pair_id"):
        from scipy.sparse import csr_array  # seldom needed, and slow to import
        from scipy.sparse.csgraph import maximum_bipartite_matching

        places = pair_hits.select(pl.col("gold", "answer").rank("dense").cast(pl.Int64) - 1)
        graph = csr_array((np.ones(len(places)), places.to_numpy().T))
        n_matched = int((maximum_bipartite_matching(graph) >= 0).sum())
        rows.append((pair_hits["pair_id"][0], n_matched))
    return pl.concat([counts, pl.DataFrame(rows, schema=counts.schema, orient="row")])


def year(text: pl.Expr) -> pl.Expr:
    """The first answer's year as a number, negative before Christ; null where it names none.

    >>> texts = ["1949; 1950%", "16 December 1949", "1,949", "44 BC", "16 May", "in spring"]
    >>> pl.DataFrame({"text": texts}).select(year(pl.col("text")))["text"].to_list()
    [1949, 1949, 1949, -44, None, None]
    """
    first = text.str.extract(_FIRST_ANSWER).str.strip_chars().str.to_uppercase()
    first = first.str.replace_all(r"\b([0-9]),([0-9]{3})\b", "$1$2")
    digits = pl.coalesce(first.str.extract(_YEAR), first.str.extract(_EARLY_YEAR))
    number = digits.cast(pl.Int64)
    return pl.when(first.str.contains(_BEFORE_CHRIST)).then(-number).otherwise(number)


def year_errors(answers: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """The error of each query for a date: relation_id, pair_id, error (years).

    Of several right years the nearest counts. Queries whose answer has no year are left out.

    Source: KAMEL, section 4.2, "Detailed Analysis", which does not say how a year is read.

    >>> objects = [{"object_id": "XMLSchema#dateTime", "labels": ["1949", "16 December 1949"]}]
    >>> pairs = pl.DataFrame({"relation_id": ["P569"], "pair_id": ["t1"], "objects": [objects]})
    >>> year_errors(pl.DataFrame({"pair_id": ["t1"], "text": [" 1951%"]}), pairs)["error"].item()
    2.0
    """
    dates = pairs.select("relation_id", "pair_id", "objects").explode("objects")
    dates = dates.unnest("objects").filter(pl.col("object_id") == DATE)
    gold = dates.select("relation_id", "pair_id", gold=year(pl.col("labels").list.first()))
    years = answers.drop_nulls("text").select("pair_id", year=year(pl.col("text")))
    errors = gold.drop_nulls("gold").join(years, on="pair_id").group_by("relation_id", "pair_id")
    error = (pl.col("year") - pl.col("gold")).abs().min().cast(pl.Float64)
    return errors.agg(error=error).drop_nulls("error").sort("relation_id", "pair_id")


def _medians(terms: pl.DataFrame, seed: int, n_rounds: int) -> BootstrapResult:
    """The median of `terms.numerator` in each round, over all and of each relation."""
    if terms.is_empty():
        return BootstrapResult(UNDEFINED, {})
    weights = bootstrap.relation_weights(terms, seed, n_rounds)
    by_relation = {
        relation: estimate(weighted_medians(rows["numerator"].to_numpy(), weights[relation]))
        for relation, rows in relations(terms, "pair_id")
    }
    all_weights = np.hstack(list(weights.values()))
    overall = weighted_medians(terms["numerator"].to_numpy(), all_weights)
    return BootstrapResult(estimate(overall), by_relation)


def weighted_medians(values: FloatArray, weights: IntArray) -> FloatArray:
    """The median of the values for each row of `weights`: how often each value is taken.

    >>> weighted_medians(np.array([5.0, 1.0, 2.0]), np.array([[1, 1, 1], [2, 2, 0]])).tolist()
    [2.0, 3.0]
    """
    order = np.argsort(values)
    reached = np.cumsum(weights[:, order], axis=1)
    total = reached[:, -1:]
    lower, upper = (
        values[order][(reached >= place).argmax(axis=1)]
        for place in ((total + 1) // 2, total // 2 + 1)
    )
    return np.asarray((lower + upper) / 2)
