"""KAMEL's metrics, against a naive scorer that follows their description word by word."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import combinations, permutations
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.datasets.kamel import DATE, NUMBER
from factsweep.operators.matching.answer_set import Matching
from factsweep.operators.metrics.kamel import (
    LAMA_RELATIONS,
    Labels,
    kamel,
    macro,
    most_frequent_answers,
    precision_recall,
    weighted_medians,
    year,
)
from factsweep.operators.metrics.shared.bootstrap import bootstrap_ratio
from factsweep.operators.metrics.shared.rows import ROWS, pair_terms
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
    kept: dict[str, Kept] = {}
    for relation, queries_of in grouped(queries).items():
        labels = [
            (form, object_of(query.object_id, names))
            for query in queries_of
            for names in query.gold
            for name in names
            for form in naive_forms(name)
            if form[1]
        ]
        told_apart = {
            one[0]
            for one, owner in labels
            for two, other in labels
            if one[0] == two[0] and one[1] != two[1] and owner != other
        }
        kept[relation] = {form for form, _ in labels if not form[0] or form[0] in told_apart}
    return kept


def grouped(queries: Iterable[Query]) -> dict[str, list[Query]]:
    found: dict[str, list[Query]] = {}
    for query in queries:
        found.setdefault(query.relation, []).append(query)
    return found


def object_of(object_id: str, names: list[str]) -> str:
    """What tells two right answers apart: the entity, or the first form of a literal."""
    return names[0].lower() if object_id.startswith("XMLSchema#") else f"{object_id}.{names[0]}"


def naive_set(text: str, matching: Matching, kept: Kept) -> set[str]:
    if matching == "paper":
        return set(text.strip().lower().replace("%", "").split(";"))
    answers = set()
    for bare, whole in naive_forms(text):
        unstopped = whole.removesuffix(".").rstrip()
        full = unstopped if (bare, whole) not in kept and (bare, unstopped) in kept else whole
        if bare:
            answers.add(full if any(bare == each for each, _ in kept) else bare)
        elif (bare, full) in kept:
            answers.add(full)
    return answers


def naive_score(
    text: str, gold: Gold, matching: Matching, labels: Labels, kept: Kept
) -> tuple[float, float]:
    answers = naive_set(text, matching, kept)
    if not answers:
        return 0.0, 0.0
    right = []
    for names in gold:
        shown = names[:1] if labels == "rdf" else names
        right.append(set().union(*(naive_set(name, matching, kept) for name in shown)) - {""})
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
        "objects": [{"object_id": ids(object_id, labels), "labels": labels} for labels in gold],
        "split": split,
    }


def ids(object_id: str, labels: list[str]) -> str:
    return object_id if object_id.startswith("XMLSchema#") else object_of(object_id, labels)


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
    best, kept = naive_baseline(train), naive_kept(queries)
    for variant, (matching, labels) in VARIANTS.items():
        for name, part in parts(queries).items():
            own = [(q.relation, q.answer, q.gold) for q in part]
            base = [(q.relation, best.get(q.relation), q.gold) for q in part]
            for prefix, source in (("", own), ("baseline_", base)):
                pooled = matching == "paper" and (name or "").startswith(("cardinality", "kind"))
                scored = [
                    (
                        "all" if pooled else relation,
                        naive_score(text, gold, matching, labels, kept[relation]),
                    )
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
        kept = naive_kept([Query("P1", "Q1", gold, text)])["P1"]
        assert naive_score(text, gold, matching, "all", kept) == expected  # type: ignore[arg-type]


def test_precision_recall_rdf_labels_alone_leave_out_the_alternatives() -> None:
    answers, pairs = tables([Query("P1", "Q1", [["Paris", "Paname"]], "Paname")], {})
    assert precision_recall(answers, pairs, labels="all")["recall"].to_list() == [1]
    assert precision_recall(answers, pairs, labels="rdf")["recall"].to_list() == [0]


def test_precision_recall_special_characters_tell_the_labels_of_a_relation_apart() -> None:
    queries = [Query("P277", "Q1", [[name]], "C") for name in ("C", "C++", "C#")]
    elsewhere = Query("P1", "Q1", [["C++"]], "C")
    scores = precision_recall(*tables([*queries, elsewhere], {}))
    assert scores["recall"].to_list() == [1, 0, 0, 1]


@given(queries=st.lists(QUERY, min_size=1, max_size=6))
def test_precision_recall_no_two_objects_fall_together_but_by_equal_labels(
    queries: list[Query],
) -> None:
    """What answers one object right in strict matching answers no other, but by an equal label."""
    for relation, own in grouped(queries).items():
        kept = naive_kept(queries)[relation]
        objects: dict[str, set[str]] = {}
        for query in own:
            for names in query.gold:
                forms = {full for name in names for _, full in naive_forms(name) if full}
                objects.setdefault(object_of(query.object_id, names), set()).update(forms)
        for one, two in combinations(objects.values(), 2):
            read = [
                set().union(*(naive_set(f, "strict", kept) for f in each)) for each in (one, two)
            ]
            assert bool(read[0] & read[1]) == bool(one & two)


def test_precision_recall_rdf_of_a_literal_is_its_first_alternative() -> None:
    queries = [
        Query("P619", DATE, [["16 December 1949", "1949"]], text)
        for text in ("1949", "16 December 1949")
    ]
    answers, pairs = tables(queries, {})
    assert precision_recall(answers, pairs, labels="rdf")["recall"].to_list() == [0, 1]
    assert precision_recall(answers, pairs, labels="all")["recall"].to_list() == [1, 1]


def test_kamel_slices_by_cardinality_are_over_queries_in_the_papers_reading() -> None:
    queries = [Query("P1", "Q1", [["a"]], "a"), Query("P1", "Q1", [["a"]], "a")]
    queries += [Query("P2", "Q1", [["a"]], "b")]
    rows = kamel(*tables(queries, {}), seed=1, n_rounds=2)
    part = rows.filter(pl.col("slice") == "cardinality=1", pl.col("metric") == "f1")
    values = dict(part.select("variant", "value").iter_rows())
    assert values[None] == pytest.approx(1 / 2)  # over relations
    assert values["matching=paper"] == pytest.approx(2 / 3)


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


def test_kamel_year_errors_are_means_and_medians_of_the_answers_with_a_year() -> None:
    answers = [" 1951%", "I do not know", "16 May 1950", "It was in 1940."]
    dates = [Query("P569", DATE, [["1949", "16 December 1949"]], answer) for answer in answers]
    both = Query("P570", DATE, [["1900"], ["1950"]], "1945")  # of right years the nearest counts
    queries = [*dates, both, Query("P1113", NUMBER, [["1949"]], "1")]
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
def test_weighted_medians_equal_those_of_repeated_values(drawn: list[tuple[int, int]]) -> None:
    values, weights = (np.array(each, dtype=float) for each in zip(*drawn, strict=True))
    if weights.sum():
        expected = np.median(np.repeat(values, weights.astype(int)))
        assert weighted_medians(values, weights[None, :].astype(int)).tolist() == [expected]


def test_most_frequent_answer_counts_once_a_query_and_equals_are_decided_by_text() -> None:
    asked = [Query(relation, "Q1", [["x"]], None) for relation in ("P1", "P2", "P3")]
    train = {"P1": [["a", "a", "a"], ["b"], ["b"]], "P2": [["b"], ["a"]]}
    pairs = tables(asked, train)[1]
    of_split = (pairs.filter(split=split) for split in ("train", "test"))
    answers = most_frequent_answers(*of_split)
    assert answers["text"].to_list() == ["b", "a"]  # of P3 nothing was shown


def test_macro_means_weigh_relations_alike_and_have_the_intervals_of_other_metrics() -> None:
    rows = [(f"P{i % 2}", f"t{i:03d}", float(i % 3 == 0), 0.0) for i in range(60)]
    columns = ["relation_id", "pair_id", "precision", "recall"]
    scores = pl.DataFrame(rows, schema=columns, orient="row")
    terms = pair_terms(scores, pl.mean("precision"), pl.lit(1.0))
    expected = bootstrap_ratio(terms, seed=1, n_rounds=50).by_relation
    found = macro(scores, seed=1, n_rounds=50).precision.by_relation
    assert [found[r] for r in found] == [pytest.approx(expected[r]) for r in found]
    few = pl.concat([scores.head(1), scores.filter(relation_id="P1", precision=0)])
    assert macro(few, seed=1, n_rounds=3).precision.overall.value == 0.5


def test_macro_interval_of_means_has_the_normal_width() -> None:
    rows = [(f"P{i % 4}", f"t{i:03d}", float(i % 3 == 0), 0.0) for i in range(400)]
    columns = ["relation_id", "pair_id", "precision", "recall"]
    scores = pl.DataFrame(rows, schema=columns, orient="row")
    _, low, high = macro(scores, seed=1, n_rounds=2000).precision.overall
    assert low is not None
    assert high is not None
    assert high - low == pytest.approx(2 * 1.96 * (2 / 9 / 400) ** 0.5, rel=0.1)


def test_kamel_no_queries_give_undefined_numbers() -> None:
    rows = kamel(*tables([], {}), seed=1, n_rounds=2)
    assert rows["slice"].null_count() == rows.height
    assert rows["value"].null_count() == rows.height
