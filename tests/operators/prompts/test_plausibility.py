"""PRobELM's items: three ways to ask, and where the entity stands in the text."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.probelm import CANDIDATES, candidates, facts_from_files
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.plausibility import (
    ITEMS,
    PROMPT_TYPES,
    PromptType,
    entity_tokens,
    items,
)
from factsweep.operators.schemas import empty
from tests.messages import naming

TEMPLATES = {
    "cit": ("[X] has citizenship of [Y].", "Question: What is [X]? Answer: [Y]."),
    "edits": ("[Y] is the editor of [X].", "Question: Who edits [X]? Answer: [Y]."),
    "wins": ("[X] won [Y] twice.", "Question: In which [Y] did [X] win? Answer: [Y]."),
}
NAMES = st.text("ab [XY]é🙂_$.", min_size=1, max_size=6)


def facts_of(groups: dict[str, list[tuple[str, list[str]]]]) -> Facts:
    templates = [
        (f"{relation}.00{i}", relation, text, "manual", 0, ("statement", "question")[i])
        for relation in groups
        for i, text in enumerate(TEMPLATES[relation])
    ]
    pairs, ranked = [], []
    for relation, of_relation in groups.items():
        for i, (subject, entities) in enumerate(of_relation):
            pair_id, positive = (
                f"{relation}.2023-11.{i}",
                {"object_id": "1", "labels": entities[:1]},
            )
            pairs.append((pair_id, relation, f"2023-11.{i}", [subject], [positive], "2023-11"))
            ranked += [
                (f"{pair_id}.{rank}", pair_id, relation, "2023-11", entity, rank, rank == 1)
                for rank, entity in enumerate(entities, 1)
            ]
    return Facts(
        pl.DataFrame({"relation_id": list(groups), "label": list(groups)}),
        pl.DataFrame(templates, schema=empty("templates").schema, orient="row"),
        pl.DataFrame(pairs, schema=empty("pairs").schema, orient="row"),
        {"candidates": pl.DataFrame(ranked, schema=CANDIDATES, orient="row")},
    )


def texts(facts: Facts, prompt_type: PromptType) -> list[str]:
    rows = items(facts, prompt_type, seed=0)
    return (rows["context"] + rows["continuation"]).to_list()


@pytest.mark.parametrize(
    ("prompt_type", "expected"),
    [
        ("statement", "Marcelo has citizenship of Spain."),
        ("completion", "Fill in the blank: Marcelo has citizenship of ____. Answer: Spain"),
        ("question", "Question: What is Marcelo? Answer: Spain."),
    ],
)
def test_expand_text_is_that_of_the_paper(prompt_type: PromptType, expected: str) -> None:
    assert texts(facts_of({"cit": [("Marcelo", ["Spain"])]}), prompt_type) == [expected]


def test_expand_asked_subject_leaves_a_statement_without_context() -> None:
    facts = facts_of({"edits": [("Time", ["Ann", "Bo"])]})
    statements = items(facts, "statement", seed=0)
    assert statements["context"].to_list() == ["", ""]
    assert statements["continuation"][1] == "Bo is the editor of Time."
    completion = items(facts, "completion", seed=0)
    assert completion["context"][0] == "Fill in the blank: ____ is the editor of Time. Answer:"


def test_expand_entity_that_stands_twice_is_the_answer() -> None:
    item = items(facts_of({"wins": [("Bo", ["Derby"])]}), "question", seed=0)
    assert item["context"].item() == "Question: In which"
    text = (item["context"] + item["continuation"]).item()
    assert text == "Question: In which Derby did Bo win? Answer: Derby."
    assert item["entity_start"].item() == text.rindex("Derby")


def naive_text(subject: str, entity: str, template: str) -> str:
    remainder, text = template, ""
    while remainder:
        for slot, name in (("[X]", subject), ("[Y]", entity)):
            if remainder.startswith(slot):
                remainder, text = remainder.removeprefix(slot), text + name
                break
        else:
            remainder, text = remainder[1:], text + remainder[0]
    return text


@given(
    subject=NAMES,
    entities=st.lists(NAMES, min_size=1, max_size=3),
    relation=st.sampled_from(list(TEMPLATES)),
    prompt_type=st.sampled_from(PROMPT_TYPES),
)
def test_expand_any_names_stand_where_their_slots_are(
    subject: str, entities: list[str], relation: str, prompt_type: PromptType
) -> None:
    statement, question = TEMPLATES[relation]
    template = {
        "statement": statement,
        "completion": f"Fill in the blank: {statement.replace('[Y]', '____')} Answer: [Y]",
        "question": question,
    }[prompt_type]
    rows = items(facts_of({relation: [(subject, entities)]}), prompt_type, seed=0)
    assert rows["context"].n_unique() == 1
    assert not rows["context"][0].endswith(" ")
    for entity, item in zip(entities, rows.iter_rows(named=True), strict=True):
        text = item["context"] + item["continuation"]
        assert text == naive_text(subject, entity, template)
        assert text[item["entity_start"] : item["entity_end"]] == entity
        assert text[item["entity_end"] :] == template.rpartition("[Y]")[2].replace("[X]", subject)


def test_expand_items_of_all_types_have_ids_and_ranks_of_their_own() -> None:
    groups = [("A", ["x", "y"]), ("B", ["x", "y", "z"]), ("C", ["z"])]
    facts = facts_of({"cit": groups, "edits": groups})
    rows = pl.concat(items(facts, prompt_type, seed=3) for prompt_type in PROMPT_TYPES)
    assert rows.schema == ITEMS
    assert rows["item_id"].is_unique().all()
    assert set(rows["candidate_id"]) == set(candidates(facts)["candidate_id"])
    ranks = rows.select("pair_id", "permutation_rank").unique()
    assert sorted(ranks["permutation_rank"]) == list(range(6))
    orders = {tuple(items(facts, "statement", seed=seed)["permutation_rank"]) for seed in range(4)}
    assert len(orders) > 1


def test_expand_relation_without_a_question_is_refused() -> None:
    facts = facts_of({"cit": [("A", ["x"])]})
    less = replace(facts, templates=facts.templates.head(1))
    assert texts(less, "completion") == ["Fill in the blank: A has citizenship of ____. Answer: x"]
    with pytest.raises(InputError, match=naming("question", "template")):
        items(less, "question", seed=0)


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    special=st.booleans(),
    start=st.integers(0, 40),
    length=st.integers(1, 10),
)
def test_entity_tokens_are_those_that_share_a_character(
    sizes: list[int], special: bool, start: int, length: int
) -> None:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    offsets = [(0, 0)] * special + list(zip([0, *ends], ends, strict=False))
    characters = set(range(start, start + length))
    expected = [i for i, (a, b) in enumerate(offsets) if characters & set(range(a, b))]
    span = entity_tokens(offsets, start, start + length)
    assert list(range(*span)) == expected
    assert expected or span == (0, 0)


def test_authors_groups_share_their_context(shared_data: Path) -> None:
    paths = [shared_data / "probelm" / name for name in ("112023.json", "prompts.csv")]
    facts = facts_from_files({path.name: path.read_text() for path in paths})
    for prompt_type in PROMPT_TYPES:
        rows = items(facts, prompt_type, seed=0)
        assert rows.height == 5294
        assert rows.group_by("pair_id").agg(pl.col("context").n_unique())["context"].max() == 1
        text = rows["context"] + rows["continuation"]
        length = rows["entity_end"] - rows["entity_start"]
        entities = rows.select(text.str.slice(rows["entity_start"], length))
        ranked = candidates(facts).select("candidate_id", "label")
        expected = rows.join(ranked, on="candidate_id", maintain_order="left")["label"]
        assert entities.to_series().to_list() == expected.to_list()
        assert not text.str.contains(r"<subject>|<object>|\[[XY]\]").any()
