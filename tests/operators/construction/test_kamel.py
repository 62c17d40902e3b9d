"""KAMEL made from triples and labels."""

import polars as pl
import pytest

from factsweep.operators.construction.kamel import (
    LABELS,
    TRIPLES,
    BuiltSet,
    Sizes,
    build,
    is_named_in,
    split_by_seed,
)
from factsweep.operators.datasets.kamel import DATE, NUMBER, facts_from_files, files_from_facts
from factsweep.operators.errors import InputError
from tests.messages import naming

SIZES = Sizes(train=2, dev=1, test=1)
QUESTIONS = {"P1": "What has [S]?", "P2": "When was [S] born?"}


def triples(*rows: tuple[str, str, str, str | None]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=TRIPLES, orient="row")


def labels(**names: list[str]) -> pl.DataFrame:
    subjects = {f"S{i}": [f"subject {i}", f"alias {i}"] for i in range(20)}
    objects = {f"O{i}": [f"thing {i}", f"object {i}"] for i in range(20)}
    return pl.DataFrame(list({**subjects, **objects, **names}.items()), schema=LABELS, orient="row")


def made(*rows: tuple[str, str, str, str | None], **names: list[str]) -> BuiltSet:
    """Of four plain queries of P1 and the rows."""
    plain = [("P1", f"S{i}", "O1", None) for i in range(4)]
    return build(triples(*plain, *rows), labels(**names), QUESTIONS, seed=1, sizes=SIZES)


def reasons(built: BuiltSet) -> list[tuple[str, str, str, int]]:
    return built.dropped.rows()


@pytest.mark.parametrize(
    ("subject", "label", "expected"),
    [
        ("irrational number", "rational number", False),  # the paper's examples
        ("Kenya national rugby league team", "rugby league", True),
        ("Rugby League World Cup", "rugby league", True),
        ("league of rugby", "rugby league", False),
        ("rugby  league", "rugby league", True),
        ("rugby", "rugby league", False),
        ("rugby league", "rugby league", True),
        ("Paris Masters", "Pari", False),
    ],
)
def test_named_in_looks_for_whole_words_in_order(subject: str, label: str, expected: bool) -> None:
    row = pl.DataFrame({"subject": [subject], "object": [label]})
    assert row.select(is_named_in(pl.col("object"), pl.col("subject"))).item() is expected


def test_build_entity_that_stands_twice_in_labels_has_the_names_of_both() -> None:
    plain = triples(*[("P1", f"S{i}", "O1", None) for i in range(4)])
    labels_again = pl.DataFrame([("O1", ["third", "thing 1"]), ("S1", ["x"])], LABELS, orient="row")
    built = build(plain, pl.concat([labels(), labels_again]), QUESTIONS, seed=1, sizes=SIZES)
    rows = built.facts.pairs.sort("pair_id")
    assert rows["pair_id"].to_list() == [f"P1.S{i}" for i in range(4)]
    assert rows["subjects"].to_list() == [[f"subject {i}"] for i in range(4)]
    for objects in rows["objects"]:
        assert objects.to_list() == [
            {"object_id": "O1", "labels": ["thing 1", "object 1", "third"]}
        ]
    assert reasons(built) == []


def test_build_draws_each_split_and_counts_the_rest() -> None:
    built = made(("P1", "S4", "O1", None), ("P1", "S5", "O1", None))
    sizes = dict(built.facts.pairs["split"].value_counts().iter_rows())
    assert sizes == {"train": 2, "dev": 1, "test": 1}
    assert reasons(built) == [("P1", "query", "not_drawn", 2)]
    ten = [("P1", "S4", f"O{i}", None) for i in range(10)]
    eleven = [("P1", "S5", f"O{i}", None) for i in range(11)]
    assert reasons(made(*ten, *eleven)) == [
        ("P1", "query", "not_drawn", 1),
        ("P1", "query", "too_many_answers", 1),
    ]
    built = made(("P2", "S1", DATE, "+1949-12-16T00:00:00Z"))
    assert built.facts.relations["relation_id"].to_list() == ["P1"]
    assert reasons(built) == [("P2", "query", "relation_too_small", 1)]
    ids = {"relation_id": ["P1"] * 1500, "pair_id": [f"P1.{i}" for i in range(1500)]}
    splits = split_by_seed(pl.DataFrame(ids), Sizes(), 0)["split"].value_counts()
    assert dict(splits.iter_rows()) == {"train": 1000, "dev": 200, "test": 200, None: 100}


def test_build_triples_that_share_a_query_are_its_answers() -> None:
    pairs = made(("P1", "S3", "O2", None), ("P1", "S3", "O1", None)).facts.pairs
    (objects,) = pairs.filter(subject_id="S3")["objects"].to_list()
    assert objects == [
        {"object_id": "O1", "labels": ["thing 1", "object 1"]},
        {"object_id": "O2", "labels": ["thing 2", "object 2"]},
    ]


def test_build_too_few_queries_or_columns_are_refused_and_values_may_be_of_no_type() -> None:
    plain = triples(*[("P1", f"S{i}", "O1", None) for i in range(4)])
    untyped = plain.with_columns(value=pl.lit(None))
    sets = [build(source, labels(), QUESTIONS, seed=1, sizes=SIZES) for source in (plain, untyped)]
    assert sets[0].facts.pairs.equals(sets[1].facts.pairs)
    for table, words in ((plain, "1400 queries"), (plain.drop("value"), "column value")):
        with pytest.raises(InputError, match=naming(words)):
            build(table, labels(), QUESTIONS, seed=1)


def test_build_unfit_triples_are_counted_by_reason() -> None:
    built = made(
        ("P1", "nameless", "O1", None),
        ("P1", "S1", "nameless", None),
        ("P1", "S1", "empty", None),
        ("P1", "S1", NUMBER, "2.5"),
        ("P1", "S1", "number", None),
        ("P9", "S1", "O1", None),  # has no question
        empty=[],
        number=["Subject", "1"],
    )
    assert reasons(built) == [
        ("P1", "triple", "named_in_subject", 1),
        ("P1", "triple", "no_date_and_no_integer", 1),
        ("P1", "triple", "object_without_label", 2),
        ("P1", "triple", "subject_without_label", 1),
    ]


def test_build_dates_become_years_and_equal_ones_are_one_answer() -> None:
    rows = [("P2", f"S{i}", DATE, "+1949-12-16T00:00:00Z") for i in range(4)]
    built = made(*rows, ("P2", "S0", DATE, "+1949-00-00T00:00:00Z"))
    (objects,) = built.facts.pairs.filter(relation_id="P2", subject_id="S0")["objects"].to_list()
    assert objects == [{"object_id": DATE, "labels": ["1949", "16 December 1949"]}]


def test_build_survives_the_authors_layout() -> None:
    facts = made(("P1", "S3", NUMBER, "+7")).facts
    reread = facts_from_files(files_from_facts(facts))
    columns = ["relation_id", "split", "subjects"]
    assert (
        reread.pairs.select(columns).sort(columns).equals(facts.pairs.select(columns).sort(columns))
    )
    assert reread.templates.equals(facts.templates)


def test_build_any_order_of_rows_gives_the_same_set() -> None:
    rows = [("P1", f"S{i}", f"O{i % 3}", None) for i in range(9)]
    days = [(f"S{i}", f"+1949-{month:02d}-01T00:00:00Z") for i in range(9) for month in (1, 2, 3)]
    rows += [("P2", subject, DATE, day) for subject, day in days]
    table = triples(*rows, *(("P1", f"S{i}", "O5", None) for i in range(9)))
    shuffled = table.sample(fraction=1, shuffle=True, seed=3)
    first, other = (build(t, labels(), QUESTIONS, seed=1, sizes=SIZES) for t in (table, shuffled))
    assert first.facts.pairs.equals(other.facts.pairs)
    third = build(table, labels(), QUESTIONS, seed=2, sizes=SIZES)
    assert not third.facts.pairs.equals(first.facts.pairs)
