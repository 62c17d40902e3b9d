"""The clozes that chance is measured by."""

from collections.abc import Callable
from dataclasses import replace

import polars as pl
import pytest

from factsweep.operators.datasets.distractors import probed
from factsweep.operators.datasets.facts import Facts, Slice
from factsweep.operators.datasets.facts import slice_single_objects as sliced
from factsweep.operators.prompts.clozes import Chance, chances

SUBJECTS = {"Q1": (["France"], [["Paris"]]), "Q2": (["Japan"], [["Tokyo"]])}
CITIES = {**SUBJECTS, "Q3": (["Italy", "Italia"], [["Rome"]])}


@pytest.fixture
def facts(make_facts: Callable[..., Facts]) -> Facts:
    """Capitals, and two other relations; Paris is the object of one of them, too."""
    given = make_facts(
        {
            "P36": (["The capital of [X] is [Y].", "[X]'s capital is [Y]"], CITIES),
            "P35": (["[X] is headed by [Y]"], {"Q2": (["Japan"], [["Naruhito"]])}),
            "P19": (["[X] was born in [Y]", "[Y] bore [X]"], {"Q9": (["Sartre"], [["Paris"]])}),
        }
    )
    label = pl.element().struct.field("labels")
    objects = pl.col("objects").list.eval(pl.struct(object_id=label.list.first(), labels=label))
    return sliced(replace(given, pairs=given.pairs.with_columns(objects)), Slice())


def of(facts: Facts, n: int = 9, seed: int = 0) -> dict[str, Chance]:
    """The chances of the capitals, by country."""
    names = dict(facts.pairs.select("pair_id", pl.col("subjects").list.first()).iter_rows())
    return {names[pair]: each for pair, each in chances(facts, "P36", n, seed=seed).items()}


def test_chances_of_subjects_are_clozes_of_the_relation_that_name_another(facts: Facts) -> None:
    for name, chance in of(facts).items():
        assert len(chance.subjects) == 2
        assert all("capital" in text for text in chance.subjects)
        assert not any(name in text for text in chance.subjects)


def test_chances_of_relations_name_the_subject_and_take_any_usable_template(facts: Facts) -> None:
    found = of(facts)
    for name, chance in found.items():
        assert set(chance.relations) == {f"{name} is headed by", f"{name} was born in"}


def test_chances_begin_with_relations_that_the_answer_is_an_object_of(facts: Facts) -> None:
    for seed in range(8):
        assert of(facts, 1, seed)["France"].relations == ["France was born in"]


def test_chances_are_at_most_n_of_each_and_drawn_by_the_seed(facts: Facts) -> None:
    drawn = {(*of(facts, 1, seed)["Japan"].subjects,) for seed in range(20)}
    assert all(len(each) == 1 for each in drawn)
    assert len(drawn) > 2  # three clozes of France and Italy under two templates, and more
    assert of(facts, 2, 5) == of(facts, 2, 5)


def test_chances_do_not_depend_on_the_order_of_facts(facts: Facts) -> None:
    turned = replace(facts, pairs=facts.pairs.reverse(), templates=facts.templates.reverse())
    assert of(turned, 1) == of(facts, 1)


def test_chances_of_written_sentences_put_the_label_of_the_subject_in_place() -> None:
    rows = [
        ("1", "P36", "object", "As everybody knows, the capital of France is ", "Paris", "Q90"),
        ("1", "P36", "subject", "Paris is the capital of ", "France", "Q142"),
        ("2", "P36", "object", "The Japanese government sits in ", "Tokyo", "Q1490"),
        ("2", "P36", "subject", "Tokyo is the capital of ", "Japan", "Q17"),
        ("3", "P108", "object", "John Doe works for ", "IBM", "Q37"),
        ("3", "P108", "subject", "An employee of IBM is ", "John Doe", ""),
    ]
    names = ("fact_id", "relation", "element", "sentence", "gold", "disambiguation")
    table = pl.DataFrame(rows, schema=names, orient="row").with_columns(
        gold_corrected="gold", human_score=pl.lit(0.5)
    )
    facts = sliced(probed({"probing": table}), Slice())
    found = chances(facts, "P36", 4, seed=0)
    assert found["P36.1"].subjects == ["The Japanese government sits in"]
    assert found["P36.1"].relations == ["France works for"]
    base = facts.knowledge_base
    assert base is not None
    others = replace(base, entities=base.entities.filter(pl.col("entity_id") != "Q142"))
    assert chances(replace(facts, knowledge_base=others), "P36", 4, seed=0)["P36.1"].relations == []
    # The sentence on Japan does not name it: it is an opening of no other subject.
    other = chances(facts, "P108", 4, seed=0)["P108.3"]
    assert other == Chance([], ["As everybody knows, the capital of John Doe is"])
