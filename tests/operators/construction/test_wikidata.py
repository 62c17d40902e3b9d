"""Reading Wikidata's JSON dumps. The entities are made here, in the dumps' layout."""

import json
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.construction.kamel import LABELS, TRIPLES, Sizes, build
from factsweep.operators.construction.wikidata import Chunk, Filter, read
from factsweep.operators.datasets.kamel import DATE, NUMBER
from factsweep.operators.errors import InputError

TAKE = Filter(("en", "mul"), ("P36", "P571"))


def named(text: str) -> dict[str, str]:
    return {"language": "en", "value": text}


def item(target: str) -> dict[str, Any]:
    return {"type": "wikibase-entityid", "value": {"entity-type": "item", "id": target}}


def statement(datavalue: dict[str, Any] | None, rank: str = "normal") -> dict[str, Any]:
    snak = {"snaktype": "value", "datavalue": datavalue} if datavalue else {"snaktype": "somevalue"}
    return {"mainsnak": snak, "type": "statement", "rank": rank}


def entity(entity_id: str, *, labels: Any = None, aliases: Any = None, **claims: Any) -> str:
    # PHP writes an empty map as a list.
    parts = {"labels": labels or [], "aliases": aliases or [], "claims": claims or []}
    return json.dumps({"type": "item", "id": entity_id, **parts})


def whole(lines: list[str], take: Filter = TAKE) -> Chunk:
    (chunk,) = read(lines, take)
    return chunk


def test_read_takes_every_value_that_is_entity_date_or_number() -> None:
    time = {"type": "time", "value": {"time": "+0987-07-00T00:00:00Z", "precision": 10}}
    amount = {"type": "quantity", "value": {"amount": "+3", "unit": "1"}}
    text = {"type": "string", "value": "x"}
    values = [item("Q90"), time, amount, text, None]
    chunk = whole([entity("Q142", P36=[statement(value) for value in values])])
    assert chunk.triples.rows() == [
        ("P36", "Q142", "Q90", None),
        ("P36", "Q142", DATE, "+0987-07-00T00:00:00Z"),
        ("P36", "Q142", NUMBER, "+3"),
    ]


def test_read_deprecated_statements_and_other_properties_are_left_out() -> None:
    line = entity(
        "Q142",
        P36=[statement(item("Q1"), "deprecated"), statement(item("Q2"), "preferred")],
        P37=[statement(item("Q150"))],
    )
    assert whole([line]).triples["object_id"].to_list() == ["Q2"]


def test_read_names_are_the_label_then_the_rest_by_language() -> None:
    labels = {"mul": named("France (mul)"), "en": named("France"), "fr": named("la France")}
    aliases = {"en": [named("FR"), named("France"), named(" ")], "mul": [named("FRA")]}
    chunk = whole([entity("Q142", labels=labels, aliases=aliases)])
    assert chunk.labels.rows() == [("Q142", ["France", "France (mul)", "FR", "FRA"])]
    lines = [entity("Q1", labels={"fr": named("un")}), entity("Q2", aliases={"en": [named("two")]})]
    assert whole(lines).labels.equals(LABELS.to_frame())


def test_read_filters_subjects_and_labelled_entities_apart() -> None:
    lines = [
        entity(each, labels={"en": named(each)}, P36=[statement(item("Q9"))])
        for each in ("Q1", "Q2")
    ]
    chunk = whole(lines, Filter(("en",), ("P36",), subjects={"Q1"}, labelled={"Q2"}))
    assert chunk.triples["subject_id"].to_list() == ["Q1"]
    assert chunk.labels["entity_id"].to_list() == ["Q2"]


def test_read_dump_layout_reads_as_bare_lines() -> None:
    lines = [entity(f"Q{i}", labels={"en": named(f"{i}")}) for i in range(3)]
    dump = ["[\n", *(f"{line},\n" for line in lines[:2]), f"{lines[2]}\r\n", "]\n", "\n"]
    for form in (dump, [line.encode() for line in dump], ["\ufeff[", *lines, "]"]):
        assert whole(form).labels.equals(whole(lines).labels)


@given(st.integers(0, 9), st.integers(1, 4))
def test_read_any_chunk_size_gives_the_same_rows(n: int, size: int) -> None:
    lines = [
        entity(f"Q{i}", labels={"en": named(f"{i}")}, P36=[statement(item("Q9"))]) for i in range(n)
    ]
    chunks = [
        Chunk(TRIPLES.to_frame(), LABELS.to_frame()),
        *read(lines, TAKE, lines_per_chunk=size),
    ]
    assert len(chunks) - 1 == -(-n // size)
    assert pl.concat(each.triples for each in chunks)["subject_id"].to_list() == [
        f"Q{i}" for i in range(n)
    ]
    assert pl.concat(each.labels for each in chunks)["labels"].explode().to_list() == [
        f"{i}" for i in range(n)
    ]


def test_read_holds_no_more_lines_than_a_chunk() -> None:
    taken = 0

    def stream() -> Iterator[str]:
        nonlocal taken
        while True:  # a dump without end
            taken += 1
            yield entity(f"Q{taken}")

    chunks = read(stream(), TAKE, lines_per_chunk=5)
    next(chunks), next(chunks)
    assert taken == 10


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "Q1", "labels"', r"line 3 of the dump is no JSON \(.*\); fetch the dump again"),
        (b'{"id": "Q\xff"}', r"line 3 of the dump is no JSON"),
        ('["Q1"]', r"line 3 of the dump is no entity"),
        ('{"labels": {}}', r"line 3 of the dump is no entity"),
        ('{"id": "Q1", "claims": [1]}', r"line 3 of the dump has another .* drop the line"),
        ('{"id": "Q1", "labels": {"en": "one"}}', r"line 3 of the dump has another layout"),
    ],
)
def test_read_bad_line_is_named_by_its_number(line: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(read(["[", entity("Q1"), line], TAKE, lines_per_chunk=1))


def test_read_tables_are_what_kamel_is_built_from() -> None:
    capital = entity("Q90", labels={"en": named("Paris")})
    countries = [
        entity(f"Q{i}", labels={"en": named(f"Country {i}")}, P36=[statement(item("Q90"))])
        for i in range(3)
    ]
    chunk = whole([capital, *countries])
    built = build(*chunk, {"P36": "What is the capital of [S]?"}, seed=1, sizes=Sizes(1, 1, 1))
    assert built.facts.pairs.height == 3
