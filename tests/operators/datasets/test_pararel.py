"""Reading ParaRel's files."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from statistics import mean

import pytest

from factsweep.operators.datasets.facts import Facts, counts
from factsweep.operators.datasets.triples import pararel
from factsweep.operators.errors import InputError
from factsweep.operators.metrics import data_set
from tests.messages import naming

SLOT = re.compile(r"\[[XY]\]")


def lines(*rows: dict[str, object]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def patterns(*texts: str) -> str:
    return lines(*({"pattern": text, "tense": "past"} for text in texts))


def triples(*pairs: tuple[str, str]) -> str:
    return lines(*({"sub_label": s, "obj_label": o, "uuid": "1"} for s, o in pairs))


def test_templates_are_numbered_in_their_relation_and_keep_their_text() -> None:
    files = {
        "set/patterns/P20.jsonl": patterns("[X] died in [Y] .", "Where died [X]? [Y]."),
        "set/patterns/P19.jsonl": patterns("[X] is from [Y]", "[X] is from [Y]"),
        "set/patterns/README.md": "text",
        **{f"set/facts/{each}.jsonl": triples(("Ann", "Rome")) for each in ("P19", "P20")},
    }
    columns = ["template_id", "text", "origin", "group", "style"]
    assert pararel(files).templates.select(columns).rows() == [
        ("P19.000", "[X] is from [Y]", "manual", 0, "statement"),
        ("P20.000", "[X] died in [Y] .", "manual", 0, "statement"),
        ("P20.001", "Where died [X]? [Y].", "manual", 1, "question"),
    ]


def test_facts_rows_of_one_subject_are_its_objects() -> None:
    files = {
        "patterns/P19.jsonl": patterns("[X] is from [Y]"),
        "facts/P19.jsonl": triples(
            ("Ann", "Rome"), ("Bob", "Bonn"), ("Ann", "Oslo"), ("Ann", "Rome")
        ),
    }
    facts = pararel(files, {"P19": "place of birth"})
    assert facts.relations.rows() == [("P19", "place of birth")]
    assert facts.pairs.select("pair_id", "subjects", "objects").rows() == [
        (
            "P19.Ann",
            ["Ann"],
            [{"object_id": "Rome", "labels": ["Rome"]}, {"object_id": "Oslo", "labels": ["Oslo"]}],
        ),
        ("P19.Bob", ["Bob"], [{"object_id": "Bonn", "labels": ["Bonn"]}]),
    ]


def test_facts_relations_without_patterns_or_facts_are_left_out() -> None:
    files = {
        "patterns/P1.jsonl": patterns("[X] [Y]"),
        "patterns/P2.jsonl": patterns("[X] [Y]"),
        "facts/P2.jsonl": triples(("Ann", "Rome")),
        "facts/P3.jsonl": triples(("Ann", "Rome")),
    }
    facts = pararel(files)
    for table in (facts.relations, facts.templates, facts.pairs):
        assert table["relation_id"].to_list() == ["P2"]


def test_facts_a_label_may_hold_what_unicode_calls_a_line_end() -> None:
    line = '{"sub_label": "A\u2028B", "obj_label": "Rome"}\r\n\n'
    files = {"patterns/P1.jsonl": patterns("[X] [Y]"), "facts/P1.jsonl": line}
    assert pararel(files).pairs["subject_id"].to_list() == ["A\u2028B"]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("{", "no JSON"),
        ("[1]", "pattern must be a text; correct or drop the line"),
        ('{"pattern": " "}', "pattern must be a text"),
        ('{"pattern": 1}', "pattern must be a text"),
    ],
)
def test_templates_unfit_line_is_named(line: str, found: str) -> None:
    with pytest.raises(InputError, match=naming("patterns/P1.jsonl, line 2", found)):
        pararel({"patterns/P1.jsonl": patterns("[X] [Y]") + line})


def test_facts_pattern_without_its_slot_is_refused() -> None:
    files = {"patterns/P1.jsonl": patterns("[X] is"), "facts/P1.jsonl": triples(("Ann", "Rome"))}
    with pytest.raises(InputError, match=naming("P1.000", "[Y]")):
        pararel(files)


def test_facts_of_the_authors_files_are_all_there(shared_data: Path) -> None:
    folder = shared_data / "trex"
    files = {str(each.relative_to(folder)): each.read_text() for each in folder.glob("*/*.jsonl")}
    facts = pararel(files)
    figures = counts(facts)
    assert (figures["relations"], figures["templates"]) == (39, 329)
    # BELIEF, Table 8, has .4860; it does not say what a word is.
    assert data_set.diversity(facts)["lexicon"][-1] == pytest.approx(0.4860, abs=0.001)


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda text: re.findall(r"\w+", SLOT.sub(" ", text)), 0.6706),
        (lambda text: re.findall(r"\w+", SLOT.sub(" ", text).lower()), 0.6599),
        (lambda text: re.findall(r"\[[xy]\]|\w+", text.lower()), 0.4781),
        (str.split, 0.6355),
    ],
    ids=["without slots", "without slots in lower case", "in lower case", "at white space"],
)
def test_lexicon_in_other_readings_is_what_docs_say(
    shared_data: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[str], list[str]],
    expected: float,
) -> None:
    monkeypatch.setattr(data_set, "words", lambda text: frozenset(read(text)))
    paths = (shared_data / "trex").glob("*/*.jsonl")
    files = {str(each.relative_to(shared_data / "trex")): each.read_text() for each in paths}
    found = [data_set.lexicon(each) for each in _templates(pararel(files))]
    assert mean(value for value in found if value is not None) == pytest.approx(expected, abs=5e-5)


def _templates(facts: Facts) -> list[list[str]]:
    """The templates of each relation."""
    return facts.templates.group_by("relation_id").agg("text")["text"].to_list()
