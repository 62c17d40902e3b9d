"""KAMEL's metrics, against a naive scorer that follows their description word by word."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import permutations
from statistics import mean
from typing import Any, NamedTuple

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.datasets.kamel import DATE, NUMBER
from operators.matching.answer_set import Matching
from operators.metrics.estimates.rows import ROWS
from operators.metrics.kamel.kamel import LAMA_RELATIONS, kamel
from operators.metrics.kamel.precision_recall import Labels, precision_recall
from operators.schemas import empty

VARIANTS: dict[str | None, tuple[Matching, Labels]] = {
    None: ("strict", "all"),
    "labels=rdf": ("strict", "rdf"),
    "matching=paper": ("paper", "all"),
    "matching=paper,labels=rdf": ("paper", "rdf"),
}
# Pieces of texts that are alike after parsing, in one way of matching or in both.
PIECES = ["a", "A", "b", "é", "É", "e\u0301", "ß", "İ", "1,000", "1000", ";", "; ", "%", " ", "."]
LABELS = ["a", "b", "A", "É", "e\u0301", "1,000", "1000", "a b", "a; b", "100%", "%", "a.", "İ"]

Gold = list[list[str]]


class Query(NamedTuple):
    relation: str
    object_id: str
    gold: Gold
    answer: str | None


def naive_set(text: str, matching: Matching) -> set[str]:
    if matching == "paper":
        return set(text.removeprefix(" ").lower().replace("%", "").split(";"))
    line = re.split("[%\r\n]", text)[0]
    answers = set()
    for part in line.lower().split(";"):
        composed = unicodedata.normalize("NFC", part)
        kept = (c for c in composed if unicodedata.category(c)[0] in "LMN" or c.isspace())
        answers.add("".join(kept).strip())
    return answers - {""}


def naive_score(text: str, gold: Gold, matching: Matching, labels: Labels) -> tuple[float, float]:
    answers = naive_set(text, matching)
    if not answers:
        return 0.0, 0.0
    right = []
    for names in gold:
        shown = names[:1] if labels == "rdf" else names
        right.append(set().union(*(naive_set(name, matching) for name in shown)) - {""})
    # Every way to give each right answer an answer of its own, or none.
    places = [*answers, *[None] * len(right)]
    found = max(
        sum(answer in names for answer, names in zip(order, right, strict=True))
        for order in permutations(places, len(right))
    )
    return found / len(answers), found / len(gold)


def naive_f1(p: float, r: float) -> float:
    return 2 * p * r / (p + r) if p + r else 0.0


def naive_numbers(scores: Iterable[tuple[str, tuple[float, float]]]) -> dict[str, float | None]:
    relations: dict[str, list[tuple[float, float]]] = {}
    for relation, score in scores:
        relations.setdefault(relation, []).append(score)
    if not relations:
        return dict.fromkeys(["precision", "recall", "f1", "f1_relation_mean"])
    means = [[mean(column) for column in zip(*each, strict=True)] for each in relations.values()]
    p, r = (mean(column) for column in zip(*means, strict=True))
    f1s = [naive_f1(*each) for each in means]
    return {"precision": p, "recall": r, "f1": naive_f1(p, r), "f1_relation_mean": mean(f1s)}


def naive_baseline(train: Mapping[str, list[list[str]]]) -> dict[str, str]:
    best = {}
    for relation, answers in train.items():
        counted = Counter(label for each in answers for label in set(each))
        best[relation] = min(counted, key=lambda label: (-counted[label], label))
    return best


def parts(queries: list[Query]) -> dict[str | None, list[Query]]:
    found: dict[str | None, list[Query]] = {None: queries}
    for query in queries:
        kind = "literal" if query.object_id.startswith("XMLSchema#") else "entity"
        names = [
            f"relation={query.relation}",
            f"cardinality={len(query.gold)}",
            f"kind={kind}",
            *["relations=lama"] * (query.relation in LAMA_RELATIONS),
        ]
        for name in names:
            found.setdefault(name, []).append(query)
    return found


def pair(relation: str, split: str, number: int, object_id: str, gold: Gold) -> dict[str, Any]:
    subject = f"{split}.{number:04d}"
    return {
        "pair_id": f"{relation}.{subject}",
        "relation_id": relation,
        "subject_id": subject,
        "subjects": ["X"],
        "objects": [{"object_id": object_id, "labels": labels} for labels in gold],
        "split": split,
    }


def tables(
    queries: list[Query], train: Mapping[str, list[list[str]]]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Answers and pairs."""
    asked = [pair(q.relation, "test", i, q.object_id, q.gold) for i, q in enumerate(queries)]
    shown = [
        pair(relation, "train", i, "Q1", [[label] for label in labels])
        for relation, each in train.items()
        for i, labels in enumerate(each)
    ]
    pairs = pl.DataFrame([*asked, *shown], schema=empty("pairs").schema)
    given_answers = [
        (row["pair_id"], query.answer)
        for row, query in zip(asked, queries, strict=True)
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
    best = naive_baseline(train)
    for variant, (matching, labels) in VARIANTS.items():
        for name, part in parts(queries).items():
            own = [(q.relation, q.answer, q.gold) for q in part]
            base = [(q.relation, best.get(q.relation), q.gold) for q in part]
            for prefix, source in (("", own), ("baseline_", base)):
                scored = [
                    (relation, naive_score(text, gold, matching, labels))
                    for relation, text, gold in source
                    if text is not None
                ]
                for metric, value in naive_numbers(scored).items():
                    if metric == "f1_relation_mean" and (
                        prefix or (name or "").startswith("relation=")
                    ):
                        continue
                    found = values[variant, name, prefix + metric]
                    assert found == (None if value is None else pytest.approx(value))


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
    ],
)
def test_precision_recall_trap_is_scored_as_described(
    text: str, gold: Gold, strict: tuple[float, float], paper: tuple[float, float]
) -> None:
    answers, pairs = tables([Query("P1", "Q1", gold, text)], {})
    for matching, expected in (("strict", strict), ("paper", paper)):
        scores = precision_recall(answers, pairs, matching=matching)  # type: ignore[arg-type]
        assert scores.select("precision", "recall").row(0) == expected
        assert naive_score(text, gold, matching, "all") == expected  # type: ignore[arg-type]


def test_precision_recall_rdf_labels_alone_leave_out_the_alternatives() -> None:
    answers, pairs = tables([Query("P1", "Q1", [["Paris", "Paname"]], "Paname")], {})
    assert precision_recall(answers, pairs, labels="all")["recall"].to_list() == [1]
    assert precision_recall(answers, pairs, labels="rdf")["recall"].to_list() == [0]


def test_precision_recall_many_answers_of_many_stay_within_their_query() -> None:
    queries = [Query("P1", "Q1", [["a"], ["b"]], "a; b"), Query("P1", "Q1", [["c"]], "a; b")]
    scores = precision_recall(*tables(queries, {}))
    assert scores.select("precision", "recall").rows() == [(1, 1), (0, 0)]


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
    shuffled = (each.sample(fraction=1, shuffle=True, seed=4) for each in (answers, pairs))
    assert kamel(*shuffled, seed=1, n_rounds=50).equals(kamel(answers, pairs, seed=1, n_rounds=50))


def test_kamel_year_error_of_dates_stands_beside_the_rest() -> None:
    queries = [
        Query("P569", DATE, [["1949", "16 December 1949"]], " 1951%"),
        Query("P569", DATE, [["1900"]], "I do not know"),
        Query("P1113", NUMBER, [["1949"]], "1"),
    ]
    rows = kamel(*tables(queries, {}), seed=1, n_rounds=2)
    years = rows.filter(pl.col("metric").str.starts_with("year"))
    assert years.select("slice", "metric", "value", "n", "n_failed").rows() == [
        (None, "year_error_mean", 2.0, 1, 1),
        ("relation=P569", "year_error_mean", 2.0, 1, 1),
        (None, "year_error_median", 2.0, 1, 1),
        ("relation=P569", "year_error_median", 2.0, 1, 1),
    ]


def test_kamel_no_queries_give_undefined_numbers() -> None:
    rows = kamel(*tables([], {}), seed=1, n_rounds=2)
    assert rows["slice"].null_count() == rows.height
    assert rows["value"].null_count() == rows.height
