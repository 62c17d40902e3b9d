"""KAMEL's prompts, against the paper's words."""

import json
from collections import Counter
from dataclasses import replace
from itertools import product

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.kamel import facts_from_files
from factsweep.operators.errors import InputError
from factsweep.operators.matching.answer_set import END
from factsweep.operators.prompts.few_shot import FewShot, expand
from factsweep.operators.schemas import SCHEMAS, conform
from tests.messages import naming

SPEAKERS = {
    "Barack Obama": ["English", "Indonesian"],
    "Albert Einstein": ["English", "German"],
    "Confucius": ["Old Chinese"],
    "António Guterres": ["Portuguese", "English", "Spanish", "French"],
    "$1 [S] [X] [Y]": ["English", "Igbo"],
}
ASKED = ["Natalie Portman", "Natalie Portman", "$1 Ke$ha"]
QUESTION = "What languages does [S] speak?"


def facts(n_train: int = 5, relations: tuple[str, ...] = ("P1412", "P103")) -> Facts:
    rows = {
        "train": list(SPEAKERS.items())[:n_train],
        "test": [(name, ["Hebrew"]) for name in ASKED],
    }
    files = {
        "question-templates.csv": "".join(
            f"{relation_id}, {QUESTION}\n" for relation_id in relations
        )
    }
    for relation, (split, questions) in product(relations, rows.items()):
        lines = (json.dumps({"sub_label": name, "obj_label": labels}) for name, labels in questions)
        if questions:
            files[f"{relation}/{split}.jsonl"] = "".join(f"{line}\n" for line in lines)
    read, order = facts_from_files(files), pl.DataFrame({"relation_id": relations})
    return replace(
        read, relations=order.join(read.relations, on="relation_id", maintain_order="left")
    )


def texts(facts: Facts, setting: FewShot, seed: int = 0) -> pl.DataFrame:
    parts = [
        expansion.prompts.join(expansion.contexts, "context_id", maintain_order="left")
        for expansion in expand(facts, setting, seed=seed)
    ]
    return pl.concat(parts).with_columns(text=pl.concat_str("text", "query"))


def naive_lines(setting: FewShot) -> set[str]:
    return {
        QUESTION.replace("[S]", name, 1) + " " + "; ".join(labels) + END
        for name, labels in SPEAKERS.items()
    }


@pytest.mark.parametrize("scope", ["prompt", "shared"])
@pytest.mark.parametrize("shots", [0, 1, 2, 5])
def test_expand_prompt_is_examples_and_the_bare_question(shots: int, scope: str) -> None:
    setting = FewShot(shots, scope)  # type: ignore[arg-type]
    prompts = texts(facts(), setting)
    assert prompts.height == 6
    for prompt in prompts.iter_rows(named=True):
        *examples, question = prompt["text"].split("\n")
        assert len(set(examples)) == shots
        assert set(examples) <= naive_lines(setting)
        name = ASKED[int(prompt["pair_id"][-1])]
        assert question == f"What languages does {name} speak?"


def test_expand_leading_blank_begins_each_question_and_changes_nothing_else() -> None:
    paper = texts(facts(), FewShot(3))["text"]
    authors = texts(facts(), FewShot(3, leading_blank=True))["text"]
    assert authors.to_list() == [
        "\n".join(f" {line}" for line in text.split("\n")) for text in paper
    ]


def test_expand_examples_are_of_the_relation_and_its_train_split_in_any_order() -> None:
    demonstrations = texts(facts(), FewShot(5))["demonstrations"]
    for relation, rows in (("P1412", demonstrations[:3]), ("P103", demonstrations[3:])):
        assert all(
            sorted(pair_ids) == [f"{relation}.train.000{i}" for i in range(5)] for pair_ids in rows
        )
    assert len(set(map(tuple, demonstrations.to_list()))) > 2  # each in an order of its own


@given(seed=st.integers(0, 2**32))
def test_expand_shared_scope_gives_a_relation_one_context(seed: int) -> None:
    for expansion in expand(facts(), FewShot(2, "shared"), seed=seed):
        assert expansion.contexts["context_id"].to_list() == [expansion.relation_id]
        assert set(expansion.prompts["context_id"]) == {expansion.relation_id}


@pytest.mark.parametrize("scope", ["prompt", "shared"])
def test_expand_any_order_of_rows_gives_the_same_prompts(scope: str) -> None:
    setting = FewShot(2, scope)  # type: ignore[arg-type]
    given_facts = facts()
    shuffled = Facts(
        given_facts.relations,
        given_facts.templates,
        given_facts.pairs.sample(fraction=1, shuffle=True, seed=3),
    )
    assert texts(shuffled, setting).equals(texts(given_facts, setting))
    other, prompts = texts(given_facts, setting, seed=1), texts(given_facts, setting)
    assert not other.equals(prompts)
    for ranks in (other["calibration_rank"], prompts["calibration_rank"]):
        assert sorted(ranks) == list(range(6))
    assert not other["calibration_rank"].equals(prompts["calibration_rank"])


def test_expand_relation_alone_gives_the_same_prompts() -> None:
    of_two = texts(facts(), FewShot(2)).filter(pl.col("pair_id").str.starts_with("P103"))
    of_one = texts(facts(relations=("P103",)), FewShot(2))
    assert of_one.drop("calibration_rank").equals(of_two.drop("calibration_rank"))
    order = pl.col("calibration_rank").rank()
    assert of_one.select(order).equals(of_two.select(order))


@pytest.mark.slow
def test_expand_every_training_query_is_drawn_as_often() -> None:
    counts = Counter[str]()
    for seed in range(300):
        counts.update(texts(facts(relations=("P1",)), FewShot(2), seed)["demonstrations"].explode())
    assert counts.total() == 300 * 3 * 2
    assert all(abs(count - 360) < 80 for count in counts.values())


def test_expand_conforms_to_the_schemas_in_relation_pure_prefix_order() -> None:
    for setting in (FewShot(0), FewShot(2), FewShot(2, "shared")):
        parts = list(expand(facts(), setting, seed=0))
        assert [expansion.relation_id for expansion in parts] == ["P1412", "P103"]
        for expansion in parts:
            assert conform(expansion.prompts, "prompts").schema == SCHEMAS["prompts"]
            assert conform(expansion.contexts, "contexts").schema == SCHEMAS["contexts"]
            order = ["template_id", "context_id", "pair_id"]
            assert expansion.prompts.equals(expansion.prompts.sort(order))
            assert expansion.prompts["prompt_id"].is_unique().all()
            assert set(expansion.prompts["context_id"]) == set(expansion.contexts["context_id"])


def test_expand_equal_texts_are_decoded_once() -> None:
    for setting in (FewShot(0), FewShot(2, "shared")):
        prompts = texts(facts(relations=("P1",)), setting)
        assert prompts["same_as"].to_list() == [None, "P1.test.0000.000.0", None]


def test_expand_asks_what_there_is_and_names_a_relation_with_too_few_to_show() -> None:
    assert list(expand(facts(), FewShot(1, split="dev"), seed=0)) == []
    with pytest.raises(InputError, match=naming("3-shot", "3 training", "P1412", "ask")):
        list(expand(facts(n_train=2), FewShot(3), seed=0))


@pytest.mark.parametrize(
    ("setting", "name", "variant"),
    [
        (FewShot(5), "5-shot", None),
        (FewShot(10, "shared"), "10-shot", "scope=shared"),
        (FewShot(0, "shared"), "0-shot", None),
        (FewShot(1, split="dev"), "1-shot", "split=dev"),
        (FewShot(1, "shared", leading_blank=True), "1-shot", "scope=shared,leading_blank=true"),
    ],
)
def test_few_shot_is_named_as_in_tables(setting: FewShot, name: str, variant: str | None) -> None:
    assert (setting.name, setting.variant) == (name, variant)
