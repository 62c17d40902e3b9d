"""Distractors compared with naive readings of section 3.3: Ω, cosine over dense vectors, time."""

import unicodedata

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from factsweep.operators import seeds
from factsweep.operators.datasets.knowledge_base import KnowledgeBase
from factsweep.operators.prompts.retrieval import (
    Retrieved,
    count_distractors,
    kinds,
    retrieve_distractors,
    vectors,
)
from tests.builders import frame

LABELS = [
    "Straße",
    "STRASSE",
    "Ka\u0301",
    "K\u00e1",
    "Rome",
    "rome",
    "Oslo",
    "Bern",
    "Lima",
    "Kyiv",
]
RELATIONS = ["P1", "P2"]
FACTS = ("pair_id", "subject_id", "relation_id", "answer_id")
Base = tuple[KnowledgeBase, pl.DataFrame]


@st.composite
def bases(draw: st.DrawFn) -> Base:
    """A small base and facts of it, with answers that may be unknown."""
    ids = [f"Q{i}" for i in range(draw(st.integers(2, 9)))]
    labels = st.lists(st.sampled_from(LABELS), min_size=1, max_size=2)
    types = st.lists(st.sampled_from(["city", "person"]), max_size=2, unique=True)
    entities = [{"entity_id": q, "labels": draw(labels), "types": draw(types)} for q in ids]
    anyone, subject = st.sampled_from([*ids, "Q99"]), st.sampled_from(["Q0", "Q99"])
    triple = st.fixed_dictionaries(
        {
            "subject_id": subject | anyone,  # two of them are asked of: they have several objects
            "relation_id": st.sampled_from(RELATIONS),
            "object_id": anyone,
            "end": st.sampled_from([None, None, "1999", "2001-05", "-0044-03-15"]),
        }
    )
    triples = draw(st.lists(triple, min_size=2, max_size=15))
    fact = st.tuples(subject, st.sampled_from(RELATIONS), anyone)
    facts = [(f"F{i}", *row) for i, row in enumerate(draw(st.lists(fact, min_size=1, max_size=4)))]
    base = KnowledgeBase(frame("entities", *entities), frame("triples", *triples))
    return base, pl.DataFrame(facts, schema=dict.fromkeys(FACTS, pl.String), orient="row")


def fold(label: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", label).casefold())


def naive_omega(base: KnowledgeBase, facts: pl.DataFrame, fact: dict[str, str]) -> set[str]:
    """The definition, word for word."""
    entities = {row["entity_id"]: row for row in base.entities.iter_rows(named=True)}
    if fact["answer_id"] not in entities:
        return set()
    subject = (fact["subject_id"], fact["relation_id"])
    right = {
        row["object_id"]
        for row in base.triples.iter_rows(named=True)
        if (row["subject_id"], row["relation_id"]) == subject and row["end"] is None
    }
    right |= {
        row["answer_id"]
        for row in facts.iter_rows(named=True)
        if (row["subject_id"], row["relation_id"]) == subject
    }
    answer = entities[fact["answer_id"]]
    of_answer = {fold(label) for label in answer["labels"]}
    return {
        q
        for q, entity in entities.items()
        if set(entity["types"]) & set(answer["types"])
        and q not in right
        and not of_answer & {fold(label) for label in entity["labels"]}
    }


@given(bases())
def test_counted_omega_is_the_definition(given_base: Base) -> None:
    base, facts = given_base
    sizes = count_distractors(base, facts)
    assert sizes["pair_id"].to_list() == facts["pair_id"].to_list()
    for fact, size in zip(facts.iter_rows(named=True), sizes["n_distractors"], strict=True):
        assert size == len(naive_omega(base, facts, fact))


@given(bases(), st.sampled_from(["random", "semantic", "temporal"]), st.integers(1, 12))
def test_retrieved_are_n_of_omega_or_all_of_it(
    given_base: Base, retrieval: Retrieved, n: int
) -> None:
    base, facts = given_base
    rows = retrieve_distractors(base, facts, retrieval, n, seed=3)
    assert rows.equals(retrieve_distractors(base, facts, retrieval, n, seed=3))
    for fact in facts.iter_rows(named=True):
        of_fact = rows.filter(pair_id=fact["pair_id"])
        omega = naive_omega(base, facts, fact)
        assert of_fact["rank"].to_list() == list(range(1, min(n, len(omega)) + 1))
        assert len(set(of_fact["entity_id"])) == of_fact.height
        assert set(of_fact["entity_id"]) <= omega


def bag(base: KnowledgeBase, entity: str) -> set[str]:
    rows = base.triples.filter(subject_id=entity).iter_rows(named=True)
    pairs = {(row["relation_id"], row["object_id"]) for row in rows}
    return {entity, *(r for r, _ in pairs), *(o for _, o in pairs), *(f"{r}/{o}" for r, o in pairs)}


def dense(base: KnowledgeBase) -> np.ndarray:  # type: ignore[type-arg]
    bags = [bag(base, entity) for entity in base.entities["entity_id"]]
    return TfidfVectorizer(analyzer=lambda words: words).fit_transform(bags).toarray()


@given(bases())
def test_vectors_have_the_cosines_of_sklearns_dense_ones(given_base: Base) -> None:
    base, _ = given_base
    rows = vectors(base).toarray()
    assert np.allclose(rows @ rows.T, cosine_similarity(dense(base)), atol=1e-12)


@given(bases())
def test_semantic_order_is_that_of_the_dense_cosine(given_base: Base) -> None:
    base, facts = given_base
    ids = base.entities["entity_id"].to_list()
    cosine = np.round(cosine_similarity(dense(base)), 9)
    turn = dict(zip(ids, seeds.keys(7, "ties", ids).tolist(), strict=True))
    rows = retrieve_distractors(base, facts, "semantic", 5, seed=7)
    for fact in facts.iter_rows(named=True):
        omega = naive_omega(base, facts, fact)
        row = ids.index(fact["answer_id"]) if omega else 0
        expected = sorted(omega, key=lambda q: (-cosine[row, ids.index(q)], turn[q]))
        assert rows.filter(pair_id=fact["pair_id"])["entity_id"].to_list() == expected[:5]


def date(text: str) -> tuple[int, ...]:
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    year, *month_and_day = map(int, digits.split("-"))
    return (sign * year, *month_and_day)


@given(bases())
def test_temporal_begins_with_what_ended_the_latest_first_then_is_semantic(
    given_base: Base,
) -> None:
    base, facts = given_base
    rows, nearest = (
        retrieve_distractors(base, facts, retrieval, 20, seed=7)
        for retrieval in ("temporal", "semantic")
    )
    for fact in facts.iter_rows(named=True):
        key = {name: fact[name] for name in ("subject_id", "relation_id")}
        ended = base.triples.filter(**key).filter(pl.col("end").is_not_null())
        ends = dict[str, tuple[int, ...]]()
        for row in ended.iter_rows(named=True):
            if row["object_id"] in naive_omega(base, facts, fact):
                found_before = ends.get(row["object_id"], (-9999,))
                ends[row["object_id"]] = max(found_before, date(row["end"]))
        entity_ids = rows.filter(pair_id=fact["pair_id"])["entity_id"].to_list()
        first = entity_ids[: len(ends)]
        assert set(first) == set(ends)
        assert [ends[q] for q in first] == sorted(ends.values(), reverse=True)
        semantic = nearest.filter(pair_id=fact["pair_id"])["entity_id"].to_list()
        assert entity_ids[len(ends) :] == [q for q in semantic if q not in ends]


def some(n: int) -> Base:
    """The cities C0 to C<n - 1> and a fact that C0 answers."""
    rows = [{"entity_id": f"C{i}", "labels": [f"city {i}"], "types": ["city"]} for i in range(n)]
    fact = pl.DataFrame([("F", "Q1", "P36", "C0")], schema=list(FACTS), orient="row")
    return KnowledgeBase(frame("entities", *rows), frame("triples")), fact


def test_random_draws_differ_by_seed_and_by_fact_and_reach_everyone() -> None:
    base, fact = some(40)
    facts = pl.concat([fact.with_columns(pair_id=pl.lit(f"F{i}")) for i in range(200)])
    facts = facts.with_columns(subject_id="pair_id")
    rows = retrieve_distractors(base, facts, "random", 5, seed=0)
    lists = rows.group_by("pair_id").agg("entity_id")["entity_id"].to_list()
    assert len({tuple(entity_ids) for entity_ids in lists}) > 190
    assert rows["entity_id"].n_unique() == 39
    assert not rows.equals(retrieve_distractors(base, facts, "random", 5, seed=1))


@pytest.mark.parametrize("retrieval", ["random", "semantic"])
def test_retrieved_other_facts_change_no_draw(retrieval: Retrieved) -> None:
    base, fact = some(40)
    right = [{"subject_id": "Q2", "relation_id": "P36", "object_id": f"C{i}"} for i in range(9)]
    base = KnowledgeBase(base.entities, frame("triples", *right))
    other = fact.with_columns(pair_id=pl.lit("G"), subject_id=pl.lit("Q2"))
    of_one = retrieve_distractors(base, fact, retrieval, 5, seed=0)
    of_two = retrieve_distractors(base, pl.concat([other, fact]), retrieval, 5, seed=0)
    assert of_two.filter(pair_id="F").equals(of_one)


def test_kinds_have_facts_of_typed_answers_and_objects_that_have_ended() -> None:
    base, fact = some(3)
    unknown = fact.with_columns(answer_id=pl.lit("Q404"))
    types = pl.lit([], pl.List(pl.String))
    untyped = KnowledgeBase(base.entities.with_columns(types=types), base.triples)
    assert list(kinds(base, unknown)) == []
    assert list(kinds(untyped, fact)) == []
    for end, n in ((None, 1), ("1999", 2)):
        triple = {"subject_id": "Q1", "relation_id": "P36", "object_id": "C1", "end": end}
        base = KnowledgeBase(base.entities, frame("triples", triple))
        assert count_distractors(base, fact)["n_distractors"].to_list() == [n]
    ended = [{**triple, "object_id": f"C{n}", "end": f"{2000 + n}"} for n in (1, 2)]
    base = KnowledgeBase(base.entities, frame("triples", *ended))
    latest_first = retrieve_distractors(base, fact, "temporal", 2, seed=0)["entity_id"]
    assert latest_first.to_list() == ["C2", "C1"]
