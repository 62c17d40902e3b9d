"""KAMEL's metrics, against a naive scorer that follows their description word by word."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import permutations
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.datasets.kamel import DATE, NUMBER
from factsweep.operators.matching.answer_set import Matching
from factsweep.operators.metrics.answer_sets import Labels, precision_recall
from factsweep.operators.metrics.kamel import LAMA_RELATIONS, kamel, macros, most_frequent_answers
from factsweep.operators.metrics.shared.bootstrap import bootstrap_ratio
from factsweep.operators.metrics.shared.rows import ROWS, pair_terms
from factsweep.operators.metrics.year_errors import weighted_medians, year
from factsweep.operators.schemas import empty

VARIANTS: dict[str | None, tuple[Matching, Labels]] = {
    None: ("strict", "all"),
    "labels=rdf": ("strict", "rdf"),
    "matching=paper": ("paper", "all"),
    "matching=paper,labels=rdf": ("paper", "rdf"),
}
# Pieces of texts that are alike after parsing, in one way of matching or in both.
PIECES = ["a", "A", "b", "é", "É", "e\u0301", "ß", "İ", "1,000", "1000", ";", "; ", "%", " ", "."]
LABELS = ["a", "b", "A", "É", "e\u0301", "1,000", "1000", "a b", "a; b", "100%", "%", "a.", "İ"]
LABELS += [".", "a++", "a#", "++"]

Gold = list[list[str]]
Kept = set[tuple[str, str]]  # an answer without its special characters, and with them


class Query(NamedTuple):
    relation: str
    object_id: str
    gold: Gold
    answer: str | None


def naive_forms(text: str) -> Kept:
    line = re.split("[%\r\n]", text)[0]
    forms = set()
    for part in line.lower().split(";"):
        full = unicodedata.normalize("NFC", part)
        bare = "".join(c for c in full if unicodedata.category(c)[0] in "LMN" or c.isspace())
        forms.add((bare.strip(), full.strip()))
    return forms


def naive_kept(queries: Iterable[Query]) -> dict[str, Kept]:
    """Of each relation, the labels that keep their special characters."""
    kept_by_relation: dict[str, Kept] = {}
    for relation, queries_of in grouped(queries).items():
        labels = [
            (form, object_of(query.object_id, names))
            for query in queries_of
            for names in query.gold
            for name in names
            for form in naive_forms(name)
            if form[1]
        ]
        ambiguous = {
            first[0]
            for first, owner in labels
            for second, other_owner in labels
            if first[0] == second[0] and first[1] != second[1] and owner != other_owner
        }
        kept_by_relation[relation] = {
            form for form, _ in labels if not form[0] or form[0] in ambiguous
        }
    return kept_by_relation


def grouped(queries: Iterable[Query]) -> dict[str, list[Query]]:
    by_relation: dict[str, list[Query]] = {}
    for query in queries:
        by_relation.setdefault(query.relation, []).append(query)
    return by_relation


def object_of(object_id: str, names: list[str]) -> str:
    """The identity of a right answer: the entity, or the first form of a literal."""
    return names[0].lower() if object_id.startswith("XMLSchema#") else f"{object_id}.{names[0]}"


def naive_set(text: str, matching: Matching, kept_forms: Kept) -> set[str]:
    if matching == "paper":
        return set(text.strip().lower().replace("%", "").split(";"))
    answers = set()
    for bare, with_marks in naive_forms(text):
        unstopped = with_marks.removesuffix(".").rstrip()
        full = (
            unstopped
            if (bare, with_marks) not in kept_forms and (bare, unstopped) in kept_forms
            else with_marks
        )
        if bare:
            answers.add(full if any(bare == kept_bare for kept_bare, _ in kept_forms) else bare)
        elif (bare, full) in kept_forms:
            answers.add(full)
    return answers


def naive_score(
    text: str, gold: Gold, matching: Matching, labels: Labels, kept_forms: Kept
) -> tuple[float, float]:
    answers = naive_set(text, matching, kept_forms)
    if not answers:
        return 0.0, 0.0
    right = []
    for names in gold:
        compared = names[:1] if labels == "rdf" else names
        right.append(
            set().union(*(naive_set(name, matching, kept_forms) for name in compared)) - {""}
        )
    # Every way to give each right answer an answer of its own, or none.
    places = [*answers, *[None] * len(right)]
    n_found = max(
        sum(answer in names for answer, names in zip(order, right, strict=True))
        for order in permutations(places, len(right))
    )
    return n_found / len(answers), n_found / len(gold)


def naive_f1(p: float, r: float) -> float:
    return 2 * p * r / (p + r) if p + r else 0.0


def naive_numbers(scores: Iterable[tuple[str, tuple[float, float]]]) -> dict[str, float | None]:
    relations: dict[str, list[tuple[float, float]]] = {}
    for relation, score in scores:
        relations.setdefault(relation, []).append(score)
    if not relations:
        return dict.fromkeys(["precision", "recall", "f1", "f1_relation_mean"])
    means = [[mean(column) for column in zip(*pairs, strict=True)] for pairs in relations.values()]
    p, r = (mean(column) for column in zip(*means, strict=True))
    f1s = [naive_f1(*pair) for pair in means]
    return {"precision": p, "recall": r, "f1": naive_f1(p, r), "f1_relation_mean": mean(f1s)}


def naive_baseline(train: Mapping[str, list[list[str]]]) -> dict[str, str]:
    best = {}
    for relation, answers in train.items():
        counts = Counter(label for labels in answers for label in set(labels))
        best[relation] = min(counts, key=lambda label: (-counts[label], label))
    return best


def parts(queries: list[Query]) -> dict[str | None, list[Query]]:
    by_name: dict[str | None, list[Query]] = {None: queries}
    for query in queries:
        kind = "literal" if query.object_id.startswith("XMLSchema#") else "entity"
        names = [
            f"relation={query.relation}",
            f"cardinality={len(query.gold)}",
            f"kind={kind}",
            *["relations=lama"] * (query.relation in LAMA_RELATIONS),
        ]
        for name in names:
            by_name.setdefault(name, []).append(query)
    return by_name


def pair(relation: str, split: str, number: int, object_id: str, gold: Gold) -> dict[str, Any]:
    is_literal = object_id.startswith("XMLSchema#")
    objects = [
        {"object_id": object_id if is_literal else object_of(object_id, labels), "labels": labels}
        for labels in gold
    ]
    names = {"relation_id": relation, "subject_id": f"{split}.{number:04d}", "subjects": ["X"]}
    pair_id = f"{relation}.{split}.{number:04d}"
    return {"pair_id": pair_id, **names, "objects": objects, "split": split}


def tables(
    queries: list[Query], train: Mapping[str, list[list[str]]]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Answers and pairs."""
    test_pairs = [pair(q.relation, "test", i, q.object_id, q.gold) for i, q in enumerate(queries)]
    train_pairs = [
        pair(relation, "train", i, "Q1", [[label] for label in labels])
        for relation, label_lists in train.items()
        for i, labels in enumerate(label_lists)
    ]
    pairs = pl.DataFrame([*test_pairs, *train_pairs], schema=empty("pairs").schema)
    given_answers = [
        (row["pair_id"], query.answer)
        for row, query in zip(test_pairs, queries, strict=True)
        if query.answer is not None
    ]
    schema = {"pair_id": pl.String, "text": pl.String}
    return pl.DataFrame(given_answers, schema=schema, orient="row"), pairs


TEXTS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
GOLD = st.lists(
    st.lists(st.sampled_from(LABELS), min_size=1, max_size=3, unique=True), min_size=1, max_size=3
)
QUERY = st.builds(
    Query,
    st.sampled_from(["P17", "P2", "P569"]),
    st.sampled_from(["Q1", NUMBER, DATE]),
    GOLD,
    st.none() | TEXTS,
)
TRAIN = st.dictionaries(
    st.sampled_from(["P17", "P2"]),
    st.lists(st.lists(st.sampled_from(LABELS), min_size=1, max_size=3), min_size=1, max_size=4),
)


@given(queries=st.lists(QUERY, min_size=1, max_size=6), train=TRAIN)
def test_kamel_any_answers_equals_the_naive_scorer(
    queries: list[Query], train: dict[str, list[list[str]]]
) -> None:
    answers, pairs = tables(queries, train)
    rows = kamel(answers, pairs, seed=1, n_rounds=2)
    values = {row[:3]: row[3] for row in rows.iter_rows()}
    assert rows.schema == ROWS
    best, kept_by_relation = naive_baseline(train), naive_kept(queries)
    for variant, (matching, labels) in VARIANTS.items():
        for name, part in parts(queries).items():
            answered = [(q.relation, q.answer, q.gold) for q in part]
            baseline = [(q.relation, best.get(q.relation), q.gold) for q in part]
            for prefix, source in (("", answered), ("baseline_", baseline)):
                pooled = matching == "paper" and (name or "").startswith(("cardinality", "kind"))
                scored = [
                    (
                        "all" if pooled else relation,
                        naive_score(text, gold, matching, labels, kept_by_relation[relation]),
                    )
                    for relation, text, gold in source
                    if text is not None
                ]
                for metric, value in naive_numbers(scored).items():
                    if metric == "f1_relation_mean" and (
                        prefix or (name or "").startswith("relation=")
                    ):
                        continue
                    number = values[variant, name, prefix + metric]
                    assert number == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize(
    ("text", "gold", "strict", "paper"),
    [
        ("English; English; english%", [["English"]], (1, 1), (1 / 2, 1)),  # repeated
        ("x", [["a", "x"], ["b", "x"]], (1, 1 / 2), (1, 1 / 2)),  # a label of two right answers
        ("x;y", [["x"], ["x", "y"]], (1, 1), (1, 1)),
        ("y;x", [["x", "y"], ["y"]], (1, 1), (1, 1)),
        ("English; German", [["English"], ["German"]], (1, 1), (1 / 2, 1 / 2)),  # "%" is missing
        ("English;", [["English"]], (1, 1), (1 / 2, 1)),
        ("ENGLISH", [["English"]], (1, 1), (1, 1)),
        ("E\u0301ire", [["Éire"]], (1, 1), (0, 0)),
        ("Eire", [["Éire"]], (0, 0), (0, 0)),
        ("1,000%", [["1000"]], (1, 1), (0, 0)),
        ("1000.", [["1,000"]], (1, 1), (0, 0)),
        ("", [["English"]], (0, 0), (0, 0)),
        ("%", [["%"]], (0, 0), (0, 0)),
        (" English\nWhat", [["English"]], (1, 1), (0, 0)),
        ("a; b", [["a; b"]], (1 / 2, 1), (1 / 2, 1)),  # a label that holds the separator
        ("English and French.", [["English"], ["French"]], (0, 0), (0, 0)),
        ("C", [["C++"]], (1, 1), (0, 0)),  # no other label is a C
        ("C", [["C"], ["C++"]], (1, 1 / 2), (1, 1 / 2)),
        ("C; C++;C#", [["C"], ["C++"], ["C#"]], (1, 1), (2 / 3, 2 / 3)),
        ("C++ ", [["C"], ["C++"]], (1, 1 / 2), (1, 1 / 2)),
        ("C#.; C .;c..", [["C"], ["C#"]], (2 / 3, 1), (0, 0)),  # a final stop ends a sentence
        ("St.", [["St."], ["St"], ["St.."]], (1, 1 / 3), (1, 1 / 3)),  # unless a label has it
        ("St..", [["St."], ["St"]], (1, 1 / 2), (0, 0)),  # and one behind that of the label
        ("!!!", [["!!!"]], (1, 1), (1, 1)),  # nothing but special characters
        ("...; !!!", [["!!!"]], (1, 1), (0, 0)),
        ("  English \n", [["English"]], (1, 1), (1, 1)),  # outer white space, as the authors do
    ],
)
def test_precision_recall_trap_is_scored_as_described(
    text: str, gold: Gold, strict: tuple[float, float], paper: tuple[float, float]
) -> None:
    answers, pairs = tables([Query("P1", "Q1", gold, text)], {})
    for matching, expected in (("strict", strict), ("paper", paper)):
        scores = precision_recall(answers, pairs, matching=matching)  # type: ignore[arg-type]
        assert scores.select("precision", "recall").row(0) == expected
        kept_forms = naive_kept([Query("P1", "Q1", gold, text)])["P1"]
        assert naive_score(text, gold, matching, "all", kept_forms) == expected  # type: ignore[arg-type]


def test_kamel_query_without_answer_is_counted_and_left_out() -> None:
    queries = [Query("P17", "Q1", [["a"]], "a"), Query("P17", "Q1", [["a"]], None)]
    rows = kamel(*tables(queries, {"P17": [["a"]]}), seed=1, n_rounds=2)
    counts = dict(
        rows.filter(pl.col("slice") == "relation=P17", pl.col("variant").is_null())
        .select("metric", pl.struct("value", "n", "n_failed"))
        .iter_rows()
    )
    assert counts["f1"] == {"value": 1.0, "n": 1, "n_failed": 1}
    assert counts["baseline_f1"] == {"value": 1.0, "n": 2, "n_failed": 0}


def test_kamel_shuffled_rows_change_nothing() -> None:
    queries = [Query(f"P{i % 3}", "Q1", [["a"], ["b"]], "a" * (i % 2)) for i in range(12)]
    answers, pairs = tables(queries, {})
    shuffled = (rows.sample(fraction=1, shuffle=True, seed=4) for rows in (answers, pairs))
    assert kamel(*shuffled, seed=1, n_rounds=50).equals(kamel(answers, pairs, seed=1, n_rounds=50))


def test_kamel_year_errors_are_means_and_medians_of_the_answers_with_a_year() -> None:
    answers = [" 1951%", "I do not know", "16 May 1950", "It was in 1940."]
    dates = [Query("P569", DATE, [["1949", "16 December 1949"]], answer) for answer in answers]
    two_years = Query("P570", DATE, [["1900"], ["1950"]], "1945")  # the nearest year counts
    queries = [*dates, two_years, Query("P1113", NUMBER, [["1949"]], "1")]
    rows = kamel(*tables(queries, {}), seed=1, n_rounds=2)
    years = rows.filter(pl.col("metric").str.starts_with("year"))
    assert years.select("slice", "metric", "value", "n", "n_failed").rows() == [
        (None, "year_error_mean", 4.25, 4, 1),
        ("relation=P569", "year_error_mean", 4.0, 3, 1),
        ("relation=P570", "year_error_mean", 5.0, 1, 0),
        (None, "year_error_median", 3.5, 4, 1),
        ("relation=P569", "year_error_median", 2.0, 3, 1),
        ("relation=P570", "year_error_median", 5.0, 1, 0),
    ]


def test_kamel_dates_without_a_year_have_no_error() -> None:
    rows = kamel(*tables([Query("P569", DATE, [["1900"]], "then")], {}), seed=1, n_rounds=2)
    years = rows.filter(pl.col("metric").str.starts_with("year"))
    assert years.select("value", "n", "n_failed").unique().rows() == [(None, 0, 1)]


YEARS = {
    " 1949%": 1949,
    "October 17, 1972": 1972,
    "3rd of May 988": 988,
    "1914–1918": 1914,
    "1949; 1950": 1949,
    "1,949": 1949,
    "79": 79,
    "AD 79": 79,
    "44 BC": -44,
    "-44": -44,
    "490 bce": -490,
    "3.": 3,
    "AD 79.": 79,
    "79 CE": 79,
    "44 B.C.": -44,
    "K-1": None,  # a product, or a class
    "No. 7": None,
    "; 1949": 1949,  # an empty answer is none
    " ;; 1949%": 1949,
    "%; 1949": None,
    "16 May": None,
    "May 16": None,
    "123456": None,
    "unknown; 1949": None,
    "unknown\n1949": None,
    "": None,
}


def test_year_is_read_from_the_first_answer() -> None:
    rows = pl.DataFrame({"text": list(YEARS)}).select("text", year=year(pl.col("text")))
    assert dict(rows.iter_rows()) == YEARS


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3)), min_size=1, max_size=9))
def test_weighted_medians_equal_those_of_repeated_values(pairs: list[tuple[int, int]]) -> None:
    values, weights = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    if weights.sum():
        expected = np.median(np.repeat(values, weights.astype(int)))
        assert weighted_medians(values, weights[None, :].astype(int)).tolist() == [expected]


def test_most_frequent_answer_counts_once_a_query_and_equals_are_decided_by_text() -> None:
    queries = [Query(relation, "Q1", [["x"]], None) for relation in ("P1", "P2", "P3")]
    train = {"P1": [["a", "a", "a"], ["b"], ["b"]], "P2": [["b"], ["a"]]}
    pairs = tables(queries, train)[1]
    of_split = (pairs.filter(split=split) for split in ("train", "test"))
    answers = most_frequent_answers(*of_split)
    assert answers["text"].to_list() == ["b", "a"]  # P3 has no train pairs


def test_macro_means_weigh_relations_alike_and_have_the_intervals_of_other_metrics() -> None:
    rows = [(f"P{i % 2}", f"t{i:03d}", float(i % 3 == 0), 0.0) for i in range(60)]
    columns = ["relation_id", "pair_id", "precision", "recall"]
    scores = pl.DataFrame(rows, schema=columns, orient="row")
    terms = pair_terms(scores, pl.mean("precision"), pl.lit(1.0))
    expected = bootstrap_ratio(terms, seed=1, n_rounds=50).by_relation
    reversed_scores = scores.with_columns(precision=1 - pl.col("precision"))
    macro, reversed_macro = macros([scores, reversed_scores], seed=1, n_rounds=50)
    by_relation = macro.precision.by_relation
    assert [by_relation[r] for r in by_relation] == [pytest.approx(expected[r]) for r in expected]
    assert reversed_macro.precision.overall.value == pytest.approx(1 - macro.precision.overall[0])
    two_relations = pl.concat([scores.head(1), scores.filter(relation_id="P1", precision=0)])
    (macro,) = macros([two_relations], seed=1, n_rounds=3)
    assert macro.precision.overall.value == 0.5


def test_kamel_no_queries_give_undefined_numbers() -> None:
    rows = kamel(*tables([], {}), seed=1, n_rounds=2)
    assert rows["slice"].null_count() == rows.height
    assert rows["value"].null_count() == rows.height
