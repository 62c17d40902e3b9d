"""What is wrong with a row of facts, and what is doubtful: one row of findings for each."""

import json
import re

import polars as pl
import pytest

from factsweep.operators.construction.facts import (
    check_rows,
    clean_rows,
    find_undated,
    generic_templates,
)
from factsweep.operators.construction.paraphrase import has_slots

_OTHER_ID = "its subject id has another name in an earlier row, and is asked by that one"


_CASES = (
    ("en", {"subject": "Mexico City", "object": "Mexico"}, "the subject names the object"),
    (
        "en",
        {"subject": "Mexico City", "object": "MX", "object_aliases": '["Mexico"]'},
        "a name of the subject names the object",
    ),
    (
        "en",
        {"subject": "CDMX", "subject_aliases": ["Mexico City"], "object": "Mexico"},
        "a name of the subject names the object",
    ),
    ("en", {"subject": "The Republic", "subject_id": "Q0", "object": "Cusco"}, _OTHER_ID),
    ("ja", {"subject": "東京都", "object": "東京"}, "the subject names the object"),
    ("ja", {"subject": "France", "object": "パリ"}, "a name without a letter of the script of ja"),
    ("ja", {"subject": "独逸", "object": "ﾍﾞﾙﾘﾝ"}, None),
    ("de", {"subject": "Tokio", "object": "東京"}, "a name without a letter of the script of de"),
    ("el", {"subject": "Αθήνα", "object": "Ελλάδα"}, None),
    ("en", {"subject": "1984", "object": "1949"}, None),
)


@pytest.mark.parametrize(
    ("relation", "first"),
    [
        ("place_of_birth", "The place of birth of [X] is [Y]."),
        ("the capital", "The capital of [X] is [Y]."),
        ("has a capital", "The capital of [X] is [Y]."),
        ("capital is", "The capital of [X] is [Y]."),
        ("What is the capital of?", "The capital of [X] is [Y]."),
        ("capital of", "[X] – capital of: [Y]."),
        ("is the capital of", "[X] is the capital of [Y]."),
        ("was born in", "[X] was born in [Y]."),
        ("located in", "[X] is located in [Y]."),
        ("plays for", "[X] plays for [Y]."),
        ("is a", "[X] is a [Y]."),
        ("is", "[X] is [Y]."),
        ("of", "[X] – of: [Y]."),
    ],
)
def test_template_of_any_form_of_name_says_no_word_twice(relation: str, first: str) -> None:
    facts = pl.DataFrame({"language": ["en"], "relation": [relation]})
    templates = generic_templates(facts)["en"][relation]
    assert templates[0] == first
    assert all(has_slots(template) for template in templates)
    assert not any(re.search(r"(?i)\b(\w+)\W+\1\b", template) for template in templates)


def test_a_row_with_a_flaw_is_found(subtests: pytest.Subtests) -> None:
    for language, fields, finding in _CASES:
        with subtests.test(more=fields):
            assert _found(language, fields) == ([] if finding is None else [finding])


def _found(language: str, fields: dict[str, object]) -> list[str]:
    """What is found of a row beside a sound one."""
    first = {"row": 0, "relation": "capital", "subject": "x", "subject_id": "Q0", "object": "y"}
    first |= {"language": language}
    rows = [{**dict.fromkeys(fields), **first}, {**first, "row": 1, "subject_id": "Q1", **fields}]
    _, findings = check_rows(pl.DataFrame(rows, infer_schema_length=2))
    return findings.filter(pl.col("row") == 1)["finding"].to_list()


def test_what_nobody_sees_is_taken_out_and_listed_in_names_and_other_names() -> None:
    rows = [
        ("Peru", "Lima", "[]", ["Lima"]),
        ("\u200fPeru", "Lima", "[]", ["Lima"]),
        ("Peru", "Lima\nCallao", "[]", ["Lima"]),
        ("Peru", "New\u00a0Lima", json.dumps(["Pe\u200bru"], ensure_ascii=False), ["Li\u00adma"]),
        ("Per\u200cu", None, None, None),  # a joiner is a letter's
    ]
    names = ["subject", "object", "subject_aliases", "object_aliases"]
    facts = pl.DataFrame(rows, names, orient="row").with_columns(
        language=pl.lit("en"), relation=pl.lit("capital")
    )
    clean, findings = clean_rows(facts.with_row_index("row"))
    assert findings["row"].to_list() == [1, 2, 3]
    assert clean.row(2)[1:3] == ("Peru", "Lima Callao")
    assert clean.row(3)[1:5] == ("Peru", "New Lima", '["Peru"]', ["Lima"])
    assert clean.row(4)[1] == "Per\u200cu"


def test_a_date_that_cannot_be_read_is_listed() -> None:
    dates = ["2024-02-29", "2024-02-30", "31.12.2024", "2024", "", None, "2024-01-01T00:00:00Z"]
    facts = (
        pl.DataFrame({"date": dates})
        .with_row_index("row")
        .with_columns(
            pl.lit("x").alias(name) for name in ("language", "relation", "subject", "object")
        )
    )
    assert find_undated(facts)["row"].to_list() == [1, 2, 3]
