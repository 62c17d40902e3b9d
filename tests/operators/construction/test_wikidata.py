"""Reading Wikidata's JSON dumps. The entities are made here, in the dumps' layout."""

import json
from typing import Any

import pytest

from factsweep.operators.construction.wikidata import check_complete, read_items
from factsweep.operators.errors import InputError


def named(text: str) -> dict[str, str]:
    return {"language": "en", "value": text}


def entity(entity_id: str, *, labels: Any = None, aliases: Any = None, **claims: Any) -> str:
    # PHP writes an empty map as a list.
    parts = {"labels": labels or [], "aliases": aliases or [], "claims": claims or []}
    return json.dumps({"type": "item", "id": entity_id, **parts})


def test_items_names_are_the_label_then_the_rest_by_language() -> None:
    labels = {"mul": named("France (mul)"), "en": named("France"), "fr": named("la France")}
    aliases = {"en": [named("FR"), named("France"), named(" ")], "mul": [named("FRA")]}
    lines = [
        entity("Q142", labels=labels, aliases=aliases),
        entity("Q1", labels={"fr": named("un")}),
        entity("Q2", aliases={"en": [named("two")]}),
    ]
    part = read_items([line.encode() for line in lines], ["en", "mul"])
    rows = part.entities.select("entity_id", "labels").rows()
    assert rows == [("Q142", ["France", "France (mul)", "FR", "FRA"])]
    assert part.n_unlabelled == 2


def test_items_of_older_dumps_have_numbers_for_ids_and_other_values_are_left_out() -> None:
    values: list[dict[str, Any] | None] = [
        {"type": "wikibase-entityid", "value": {"entity-type": "item", "numeric-id": 90}},
        {"type": "wikibase-entityid", "value": {"entity-type": "property", "numeric-id": 9}},
        {"type": "time", "value": {"time": "+0987-07-00T00:00:00Z", "precision": 10}},
        {"type": "quantity", "value": {"amount": "+3", "unit": "1"}},
        None,
    ]
    claims = [{"mainsnak": {"datavalue": value} if value else {}} for value in values]
    line = entity("Q142", labels={"en": named("France")}, P36=claims)
    assert read_items([line.encode()], ["en"]).triples.rows() == [
        ("Q142", "P36", "Q90", None, None)
    ]


def test_dump_layout_reads_as_bare_lines() -> None:
    lines = [entity(f"Q{i}", labels={"en": named(f"{i}")}) for i in range(3)]
    dump = ["[\n", *(f"{line},\n" for line in lines[:2]), f"{lines[2]}\r\n", "]\n", "\n"]
    for form in (dump, ["\ufeff[", *lines, "]"]):
        read = read_items([line.encode() for line in check_complete(form)], ["en"])
        assert read.entities["entity_id"].to_list() == ["Q0", "Q1", "Q2"]
    with pytest.raises(InputError, match="its last line is no ]"):
        list(check_complete(dump[:-2]))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"id": "Q1", "labels"', r"line 3 of the dump is no JSON \(.*\); fetch the dump again"),
        (b'{"id": "Q\xff"}', r"line 3 of the dump is no JSON"),
        (b'["Q1"]', r"line 3 of the dump is no entity"),
        (b'{"labels": {}}', r"line 3 of the dump is no entity"),
        (b'{"id": "Q1", "labels": {"en": "one"}}', r"line 3 of the dump has another layout"),
    ],
)
def test_items_bad_line_is_named_by_its_number(line: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_items([b"[", entity("Q1").encode(), line], ["en"])
