"""Contradictions: counted in every layout, and said with what is done about them."""

import json
from collections.abc import Mapping

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.myriadlama import rows_from_facts
from factsweep.operators.datasets.readers import DONE, READERS
from factsweep.operators.datasets.readers import describe_contradictions as sentences


def counted(reader: str, content: object) -> Mapping[str, int]:
    counts = READERS[reader].contradictions(content, READERS[reader].facts(content, None))
    assert set(counts) <= set(DONE)
    return {name: n for name, n in counts.items() if n}


def test_rows_that_differ_of_one_pair_or_object_are_counted(mini: Facts) -> None:
    assert counted("myriadlama", rows_from_facts(mini).lazy()) == {}
    rows = rows_from_facts(mini.of("P36"))
    is_last = pl.int_range(pl.len()) == rows.height - 1
    is_first_subject = pl.col("sub_uri") == rows["sub_uri"][0]
    shared = rows["obj_uris"][-1].to_list()
    for is_changed, column, value, names in (
        (is_last, "sub_ent", "Another", {"contradicting_pairs", "subjects_of_two_labels"}),
        (is_last, "obj_ents", ["Another"], {"contradicting_pairs"}),
        (is_first_subject, "obj_uris", shared, {"objects_of_two_labels"}),
    ):
        other = pl.when(is_changed).then(pl.lit(value)).otherwise(column).alias(column)
        assert counted("myriadlama", rows.with_columns(other).lazy()) == dict.fromkeys(names, 1)


def test_rows_of_four_columns_without_ids_contradict_nothing() -> None:
    columns = ["relation", "template", "subject", "object"]
    rows = [("capital", "The capital of [X] is [Y].", *pair) for pair in ("AB", "CD")]
    assert counted("myriadlama", pl.LazyFrame(rows, columns, orient="row")) == {}


def test_queries_of_one_subject_with_other_answers_are_counted() -> None:
    def row(answer: str) -> str:
        labels = [{"rdf": answer, "alternative": [], "chosen": None}]
        return json.dumps({"sub_label": "Peru", "obj_label": labels, "obj_uri": ["Q1"]})

    files = {
        "question-templates.csv": "P36, What is the capital of [S]?",
        "P36/test.jsonl": "\n".join(map(row, ("Lima", "Cusco"))),
        "P36/train.jsonl": row("Lima"),
    }
    expected = {"objects_of_two_labels": 1, "questions_of_two_answers": 1}
    assert counted("kamel", files) == expected


def test_triples_of_one_subject_with_other_objects_are_counted() -> None:
    triples = [{"sub_label": "Ann", "obj_label": place} for place in ("Rome", "Oslo")]
    files = {
        "patterns/P19.jsonl": '{"pattern": "[X] was born in [Y]."}',
        "facts/P19.jsonl": "\n".join(map(json.dumps, triples)),
    }
    assert counted("pararel", files) == {"merged_subjects": 1}


def test_relations_that_have_a_file_and_are_not_asked_are_counted() -> None:
    triple = json.dumps({"sub_label": "Ann", "obj_label": "Rome"})
    pattern = json.dumps({"pattern": "[X] was born in [Y]."})
    files = {
        f"{folder}/P19.jsonl": row for folder, row in (("patterns", pattern), ("facts", triple))
    }
    untold, empty = {"facts/P1.jsonl": triple}, {"patterns/P2.jsonl": pattern}
    assert counted("pararel", files | untold | empty) == {"relations_left_out": 2}
    template = json.dumps({"relation": "P19", "template": "[X] wurde in [Y] geboren."})
    files = {"de/templates.jsonl": template, "de/P19.jsonl": triple, "de/P1.jsonl": triple}
    assert counted("mlama", files)["relations_left_out"] == 1
    del files["de/P1.jsonl"]
    assert "relations_left_out" not in counted("mlama", files)


def test_groups_of_one_subject_with_other_objects_are_counted() -> None:
    def group(number: int, *objects: str) -> list[dict[str, object]]:
        fixed = {"subject": "Ann", "relation": "residence", "id": number}
        return [
            {**fixed, "object": label, "label": int(rank == 1), "rank": rank}
            for rank, label in enumerate(objects, start=1)
        ]

    files = {
        "prompts.csv": "residence, <subject> lives in <object>., <subject>? <object>, <object>",
        "112023.json": json.dumps([group(1, "Rome", "Oslo"), group(2, "Oslo", "Rome")]),
    }
    assert counted("probelm", files) == {"questions_of_two_answers": 1}


def test_sentences_say_what_is_done() -> None:
    (line,) = sentences({"pairs": 3, "contradicting_pairs": 1200, "merged_subjects": 0})
    assert "1,200 contradicting pairs" in line
