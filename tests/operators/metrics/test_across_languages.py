"""The same facts in several languages."""

import random
from itertools import product

import polars as pl
import pytest

from factsweep.operators.matching.lemmas import SEPARATOR
from factsweep.operators.metrics.comparing.across_languages import (
    across_languages,
    entities,
    known_in_one_alone,
)
from factsweep.operators.tables.runs.study import across_table

Row = dict[str, object]


def made(rng: random.Random) -> dict[str, pl.DataFrame]:
    """Answers in three languages, each of some of twelve facts."""
    languages = {}
    for name in ("de", "fr", "ko"):
        rows = [
            {"relation_id": f"P{n % 2}", "pair_id": f"P{n % 2}.{n}", "entity_id": entity}
            | {"correct": entity == "Q1"}
            for n in rng.sample(range(12), 9)
            for entity in rng.choices(["Q1", "Q2", None], k=rng.randint(1, 4))
        ]
        languages[name] = pl.DataFrame(rows)
    return languages


def by_fact(answers: pl.DataFrame) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in answers.iter_rows(named=True):
        found.setdefault(row["pair_id"], []).append(row)
    return found


def is_known(rows: list[Row]) -> bool:
    return sum(bool(row["correct"]) for row in rows) / len(rows) >= 0.5


@pytest.mark.parametrize("seed", range(5))
def test_every_pair_of_languages_is_as_counted_by_hand(seed: int) -> None:
    languages = made(random.Random(seed))
    found = across_languages(languages, seed=1, n_rounds=50)
    assert found.height == 6
    for row in found.iter_rows(named=True):
        first, second = (by_fact(languages[row[name]]) for name in ("language", "other"))
        both = first.keys() & second.keys()
        known = [each for each in both if is_known(first[each])]
        shared = [each for each in known if is_known(second[each])]
        assert (row["n_facts"], row["n_known"]) == (len(both), len(known))
        assert row["n_shared"] == len(shared)
        assert row["sharing"] == (pytest.approx(len(shared) / len(known)) if known else None)
        agreement = []
        for fact in both:
            pairs = list(product(first[fact], second[fact]))
            same = [a["entity_id"] == b["entity_id"] is not None for a, b in pairs]
            agreement.append(sum(same) / len(pairs))
        assert row["consist"] == pytest.approx(sum(agreement) / len(agreement))
        assert row["consist_low"] <= row["consist"] <= row["consist_high"]
    assert across_table(found).height == 6
    facts = {name: by_fact(answers) for name, answers in languages.items()}
    everywhere = set.intersection(*(set(each) for each in facts.values()))
    alone = {
        (fact, name)
        for fact in everywhere
        for name in facts
        if [other for other in facts if is_known(facts[other][fact])] == [name]
    }
    assert set(known_in_one_alone(languages).select("pair_id", "language").iter_rows()) == alone


def test_answers_name_entities_by_names_of_both_languages(subtests: pytest.Subtests) -> None:
    names = [
        ("P1", "Q1", "wien"),
        ("P1", "Q1", "vienna"),
        ("P1", "Q2", "york"),
        ("P1", "Q3", "new york"),
        ("P1", "Q4", "rom"),
        ("P1", "Q5", "rom"),
        ("P2", "Q6", "bonn"),
    ]
    keyed = pl.DataFrame(
        [(r, q, key(text)) for r, q, text in names],
        schema=["relation_id", "entity_id", "key"],
        orient="row",
    )
    for text, expected in (
        ("in wien", "Q1"),
        ("vienna", "Q1"),
        ("new york", "Q3"),  # the longest name
        ("york", "Q2"),
        ("rom", None),  # two entities
        ("bonn", None),  # another relation's
        ("", None),
    ):
        with subtests.test(text):
            answers = pl.DataFrame({"relation_id": ["P1"], "key": [key(text)]})
            answers = answers.cast({"key": pl.String})
            assert entities(answers, keyed)["entity_id"].to_list() == [expected]


def key(text: str) -> str | None:
    words = text.split()
    return SEPARATOR + SEPARATOR.join(words) + SEPARATOR if words else None
