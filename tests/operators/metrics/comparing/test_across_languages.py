"""The same facts in several languages."""

import random
from itertools import product

import polars as pl
import pytest

from factsweep.operators.matching.lemmas import SEPARATOR
from factsweep.operators.metrics.comparing.across_languages import (
    compare_languages,
    facts_known_in_one_language,
)
from factsweep.operators.tables.comparison import across_table

Row = dict[str, object]
Tables = dict[str, pl.DataFrame]
# The names of objects by relation and language; "york" and "new york" are two cities.
NAMES = {
    ("P0", "Q1"): {"de": ["wien"], "fr": ["vienne"], "ko": ["bin"]},
    ("P0", "Q2"): {"de": ["york"], "fr": ["york"], "ko": ["yokeu"]},
    ("P0", "Q3"): {"de": ["new york"], "fr": ["new york"], "ko": ["nyuyok"]},
    ("P1", "Q1"): {"de": ["wien", "wean"], "fr": [], "ko": ["bin"]},
    ("P1", "Q4"): {"de": ["bonn"], "fr": ["bonn"], "ko": []},
}
TEXTS = ["wien", "in vienne", "bin", "york", "new york", "wien bonn", "ja", "ja ja", "nein", ""]


def key(text: str) -> str | None:
    words = text.split()
    return SEPARATOR + SEPARATOR.join(words) + SEPARATOR if words else None


def names() -> Tables:
    """The names in all languages, which are compared alike in each."""
    rows = [
        (relation, entity, language, key(name))
        for (relation, entity), by_language in NAMES.items()
        for language, labels in by_language.items()
        for name in labels
    ]
    table = pl.DataFrame(rows, ["relation_id", "entity_id", "language", "key"], orient="row")
    return dict.fromkeys(("de", "fr", "ko"), table)


def answers(*facts: tuple[str, list[str]], right: str = "wien") -> pl.DataFrame:
    """Answers to facts: the id of each, which begins with its relation's, and what was said."""
    return pl.DataFrame(
        [
            (fact.split(".")[0], fact, key(text), text == right)
            for fact, texts in facts
            for text in texts
        ],
        schema={"relation_id": pl.String, "pair_id": pl.String, "key": pl.String}
        | {"correct": pl.Boolean},
        orient="row",
    )


def made(rng: random.Random) -> Tables:
    """Answers in three languages, each of some of twelve facts."""
    return {
        language: answers(
            *(
                (f"P{n % 2}.{n}", rng.choices(TEXTS, k=rng.randint(1, 4)))
                for n in rng.sample(range(12), 9)
            )
        )
        for language in ("de", "fr", "ko")
    }


def by_fact(table: pl.DataFrame) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    for row in table.iter_rows(named=True):
        rows.setdefault(row["pair_id"], []).append(row)
    return rows


def is_known(rows: list[Row]) -> bool:
    return sum(bool(row["correct"]) for row in rows) > len(rows) / 2


def has(text: object, part: object) -> bool:
    """Whether the words of a text have those of another in a row."""
    return bool(text and part) and str(part) in str(text)


def entities(row: Row, languages: tuple[str, str]) -> set[str]:
    return {
        entity
        for (relation, entity), by_language in NAMES.items()
        if relation == row["relation_id"]
        for language in languages
        for name in by_language[language]
        if has(row["key"], key(name))
    }


def agree(first: Row, second: Row, languages: tuple[str, str]) -> bool:
    first_entities, second_entities = entities(first, languages), entities(second, languages)
    if first_entities or second_entities:
        return bool(first_entities & second_entities)
    return has(first["key"], second["key"]) or has(second["key"], first["key"])


@pytest.mark.parametrize("seed", range(5))
def test_every_pair_of_languages_is_as_counted_by_hand(seed: int) -> None:
    languages = made(random.Random(seed))
    pairs = compare_languages(languages, names(), seed=1, n_rounds=50)
    assert pairs.height == 6
    for row in pairs.iter_rows(named=True):
        pair = (row["language"], row["other"])
        first, second = (by_fact(languages[name]) for name in pair)
        shared_facts = first.keys() & second.keys()
        known_facts = [fact for fact in shared_facts if is_known(first[fact])]
        shared = [fact for fact in known_facts if is_known(second[fact])]
        assert (row["n_facts"], row["n_known"]) == (len(shared_facts), len(known_facts))
        assert row["n_shared"] == len(shared)
        assert row["sharing"] == (
            pytest.approx(len(shared) / len(known_facts)) if known_facts else None
        )
        agreement = []
        for fact in shared_facts:
            rows = list(product(first[fact], second[fact]))
            agreement.append(sum(agree(a, b, pair) for a, b in rows) / len(rows))
        assert row["consist"] == pytest.approx(sum(agreement) / len(agreement))
        assert row["consist_low"] <= row["consist"] <= row["consist_high"]
    assert across_table(pairs).height == 6
    facts = {name: by_fact(table) for name, table in languages.items()}
    known_once = {
        (fact, name)
        for fact in set.intersection(*(set(rows) for rows in facts.values()))
        for name in facts
        if [language for language in facts if is_known(facts[language][fact])] == [name]
    }
    table = facts_known_in_one_language(languages).select("pair_id", "language")
    assert set(table.iter_rows()) == known_once


def test_answers_agree_by_entities_of_the_two_languages_or_else_by_text(
    subtests: pytest.Subtests,
) -> None:
    for first, second, expected in (
        ("wien", "vienne", 1.0),
        ("vienne", "wien", 1.0),  # an answer in the other language
        ("bin", "wien", 0.0),  # a name in a third language
        ("bin", "bin", 1.0),  # no entity of these languages, and the same text
        ("york", "new york", 1.0),  # both name York
        ("wien", "york", 0.0),
        ("wien", "ja", 0.0),
        ("ja", "ja ja", 1.0),
        ("ja", "nein", 0.0),
        ("", "", 0.0),
        ("bin", "wien bin", 0.0),  # only one names an entity, though the text is contained
        ("bonn", "bonn", 1.0),  # another relation's entity is text
    ):
        with subtests.test(f"{first} / {second}"):
            tables = {"de": answers(("P0.1", [first])), "fr": answers(("P0.1", [second]))}
            assert compare_languages(tables, names(), seed=0)["consist"].to_list() == [expected] * 2


def test_fact_with_half_of_its_prompts_right_is_not_known() -> None:
    half, most = ("P0.1", ["wien", "ja"]), ("P0.1", ["wien", "wien", "ja"])
    tables = {"de": answers(half), "fr": answers(most)}
    counts = compare_languages(tables, names(), seed=0).select("n_known", "n_shared", "sharing")
    assert counts.rows() == [(0, 0, None), (1, 0, 0.0)]
    assert facts_known_in_one_language(tables)["language"].to_list() == ["fr"]
    assert facts_known_in_one_language(tables, 0.4).is_empty()
