"""Clozes, their candidate sets, what ends a name, and the clozes that chance is measured by."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from factsweep.operators.datasets.distractors import read_probed
from factsweep.operators.datasets.facts import Facts, Slice
from factsweep.operators.datasets.facts import slice_single_objects as sliced
from factsweep.operators.datasets.knowledge_base import KnowledgeBase
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.clozes import (
    Chance,
    Distractors,
    Retrieval,
    answers,
    chances,
    clozes,
    ending_tokens,
    expand,
)
from factsweep.operators.prompts.expansion import Expansion, with_text
from factsweep.operators.prompts.retrieval import count_distractors
from factsweep.operators.schemas import SCHEMAS, conform
from tests.builders import facts as make_facts
from tests.messages import naming

ALL = Slice()
OWN: tuple[Retrieval, ...] = ("random", "semantic", "temporal")
SHARED: tuple[Retrieval, ...] = ("optimal", "exact")
CITIES = {
    "Q1": (["France", "Gaul"], [["Paris", "Lutetia"]]),
    "Q2": (["Japan"], [["Tokyo"]]),
    "Q3": (["Italy"], [["Rome"], ["Turin"]]),
}


@pytest.fixture
def capitals() -> Facts:
    """Three countries; ids of objects are told apart by their country."""
    facts = make_facts({"P36": (["[X]: [Y].", "[Y] of [X].", "Of [X] is  [Y] ."], CITIES)})
    ids = [
        {"object_id": object_["labels"][0], "labels": object_["labels"]}
        for row in facts.pairs["objects"]
        for object_ in row
    ]
    ids[-1]["object_id"] = None  # known by its label
    objects = pl.Series([[ids[0]], [ids[1]], ids[2:]], dtype=facts.pairs.schema["objects"])
    return replace(facts, pairs=facts.pairs.with_columns(objects=objects))


def expanded(facts: Facts, setting: Distractors, seed: int = 0) -> list[Expansion]:
    return list(expand(facts, setting, seed=seed))


def prompts(facts: Facts, setting: Distractors, seed: int = 0) -> pl.DataFrame:
    return pl.concat(expansion.prompts for expansion in expanded(facts, setting, seed))


def sets(facts: Facts, setting: Distractors, seed: int = 0) -> pl.DataFrame:
    expansions = expanded(facts, setting, seed)
    return pl.concat(
        expansion.candidate_sets for expansion in expansions if expansion.candidate_sets is not None
    )


@pytest.mark.parametrize("retrieval", [*OWN, *SHARED])
def test_expand_tables_conform(capitals: Facts, retrieval: Retrieval) -> None:
    (expansion,) = expanded(sliced(capitals, ALL), Distractors(retrieval))
    assert expansion.candidate_sets is not None
    assert conform(expansion.prompts, "prompts").schema == SCHEMAS["prompts"]
    assert conform(expansion.contexts, "contexts").schema == SCHEMAS["contexts"]
    assert conform(expansion.candidate_sets, "candidate_sets").num_rows > 0


def test_expand_text_is_the_cloze_cut_before_the_object(capitals: Facts) -> None:
    (expansion,) = expanded(sliced(capitals, ALL), Distractors("random"))
    texts = with_text(expansion.prompts, expansion.contexts)["text"]
    assert sorted(texts.unique()) == [
        *("France:", "Gaul:", "Italy:", "Japan:"),
        *(f"Of {name} is" for name in ("France", "Gaul", "Italy", "Japan")),
    ]


@pytest.mark.parametrize(
    ("template", "cloze"),
    [
        ("[X] lies in [Y]", "S lies in"),
        ("[X] lies in [Y] .", "S lies in"),
        ("Where is [X]? [Y].", "Where is S?"),
        ("[X] lies in [Y]!", None),
        ("[Y] has [X].", None),
        ("[Y] and [X] are in [Y].", None),
    ],
)
def test_clozes_are_templates_that_end_in_the_object(template: str, cloze: str | None) -> None:
    # A name may look like a slot, or like a part of a pattern.
    pairs = {"Q1": (["S", "[Y]", "$1"], [["O"]])}
    facts = make_facts({"P1": ([template, "[X] = [Y]"], pairs)})
    texts = [cloze.replace("S", name) for name in pairs["Q1"][0] if cloze]
    assert clozes(facts)["query"].to_list() == [*texts, "S =", "[Y] =", "$1 ="]


def test_facts_that_give_no_clozes_are_refused(capitals: Facts) -> None:
    unfit = make_facts({"P1": (["[Y] has [X]."], {"Q1": (["S"], [["O"]])})})
    with pytest.raises(InputError, match=naming("relation P1", "[Y]")):
        prompts(sliced(unfit, ALL), Distractors("random"))
    with pytest.raises(InputError, match=naming("pair P36.Q3")):
        answers(capitals)
    with pytest.raises(InputError, match=naming("distractors", "need")):
        prompts(capitals, Distractors("random"))


def test_sliced_pair_of_two_objects_is_two_facts(capitals: Facts) -> None:
    facts = sliced(capitals, ALL)
    assert facts.pairs["pair_id"].to_list() == [
        *("P36.Q1", "P36.Q2", "P36.Q3.Rome", "P36.Q3.Turin")
    ]
    assert answers(facts)["answer_id"].to_list() == ["Paris", "Tokyo", "Rome", "Turin"]
    assert facts.extra_tables["details"]["pair_id"].to_list() == facts.pairs["pair_id"].to_list()


def test_expand_own_set_is_the_answer_then_distractors(capitals: Facts) -> None:
    candidates = sets(sliced(capitals, ALL), Distractors("random"))
    of_rome = candidates.filter(candidates_id="P36.Q3.Rome")
    assert of_rome.select("entity_id", "rank").row(0) == ("Rome", 0)
    assert of_rome["rank"].to_list() == [0, 1, 2]
    assert set(of_rome["entity_id"]) == {"Rome", "Paris", "Tokyo"}  # Turin is right, too
    assert of_rome.filter(entity_id="Paris")["labels"].to_list() == [["Paris", "Lutetia"]]


def test_expand_shared_set_is_everything_of_the_kind(capitals: Facts) -> None:
    facts = sliced(capitals, ALL)
    candidates = sets(facts, Distractors("optimal"))
    assert set(candidates["candidates_id"]) == {"P36"}
    assert sorted(candidates["entity_id"]) == ["Paris", "Rome", "Tokyo", "Turin"]
    assert candidates["rank"].null_count() == 4
    rows = prompts(facts, Distractors("optimal"))
    left_out = dict(rows.select("pair_id", "left_out").iter_rows())
    assert left_out == {
        "P36.Q1": [],
        "P36.Q2": [],
        "P36.Q3.Rome": ["Turin"],
        "P36.Q3.Turin": ["Rome"],
    }


@pytest.mark.parametrize("retrieval", [*OWN, *SHARED])
def test_expand_answer_that_the_base_lacks_keeps_a_set_of_its_own(
    capitals: Facts, retrieval: Retrieval
) -> None:
    facts = sliced(capitals, ALL)
    base = facts.knowledge_base
    assert base is not None
    without = KnowledgeBase(base.entities.filter(pl.col("entity_id") != "Tokyo"), base.triples)
    candidates = sets(replace(facts, knowledge_base=without), Distractors(retrieval))
    of_tokyo = candidates.filter(candidates_id="P36.Q2")
    assert of_tokyo.select("entity_id", "labels").rows() == [("Tokyo", ["Tokyo"])]
    assert of_tokyo["rank"].to_list() == [None if retrieval in SHARED else 0]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_expand_fewer_clozes_are_among_more(n: int) -> None:
    names = {f"Q{i}": (["a", "b"], [[f"o{i}"]]) for i in range(3)}
    facts = sliced(make_facts({"P1": (["[X] is [Y]", "[X]: [Y]."], names)}), ALL)
    smaller, larger = (prompts(facts, Distractors("random", n_clozes=k)) for k in (n, n + 1))
    assert smaller.height == 3 * n
    assert set(smaller["prompt_id"]) < set(larger["prompt_id"])


def test_expand_one_cloze_of_each_fact_has_a_rank_among_all(mini: Facts) -> None:
    facts = sliced(mini, Slice(pairs_per_relation=3))
    rows = prompts(facts, Distractors("random", n=2))
    ranked = rows.drop_nulls("calibration_rank")
    assert sorted(ranked["calibration_rank"]) == list(range(facts.pairs.height))
    assert ranked["pair_id"].n_unique() == facts.pairs.height


def test_expand_of_a_slice_draws_what_the_whole_draws(mini: Facts) -> None:
    of_all = sets(sliced(mini, ALL), Distractors("semantic", n=5))
    part = sets(sliced(mini, Slice(pairs_per_relation=2)), Distractors("semantic", n=5))
    order = ["candidates_id", "rank"]
    expected = of_all.join(part, on="candidates_id", how="semi").sort(order)
    assert part.sort(order).equals(expected)
    assert part.height > 200


def test_expand_sizes_of_sets_are_those_of_omega(mini: Facts) -> None:
    facts = sliced(mini, Slice(pairs_per_relation=3))
    assert facts.knowledge_base is not None
    sizes = count_distractors(facts.knowledge_base, answers(facts))
    lengths = sets(facts, Distractors("random")).group_by(pair_id="candidates_id").len()
    joined = sizes.join(lengths, on="pair_id")
    assert joined.height == facts.pairs.height
    assert ((joined["n_distractors"] + 1).clip(upper_bound=101) == joined["len"]).all()


def test_expand_answer_known_by_label_is_found_in_the_base(capitals: Facts) -> None:
    facts = sliced(capitals, ALL)
    base = facts.knowledge_base
    assert base is not None
    ids = {"Paris": "Q90", "Rome": "Q220"}
    entities = base.entities.with_columns(pl.col("entity_id").replace(ids))
    # Another Paris, more popular, that is no capital.
    other = entities.filter(entity_id="Q90").with_columns(entity_id=pl.lit("Q1"), popularity=9.0)
    triples = base.triples.with_columns(pl.col("object_id").replace(ids))
    larger_base = KnowledgeBase(pl.concat([entities, other]), triples)
    rows = prompts(replace(facts, knowledge_base=larger_base), Distractors("random"))
    answer_ids = dict(rows.select("pair_id", "answer_id").iter_rows())
    assert (answer_ids["P36.Q1"], answer_ids["P36.Q3.Rome"], answer_ids["P36.Q2"]) == (
        "Q90",
        "Q220",
        "Tokyo",
    )


def test_distractors_variant_names_departures() -> None:
    assert Distractors("optimal").variant is None
    setting = Distractors("optimal", n=20, ending="eos", n_clozes=3)
    assert (setting.name, setting.variant) == ("optimal", "ending=eos,n=20,n_clozes=3")


def test_sentence_ends_with_stops_and_line_ends_and_goes_on_with_anything_else(
    tokenizer: Any,
) -> None:
    assert ending_tokens(tokenizer, "eos") == (tokenizer.eos_token_id,)
    tokens = ending_tokens(tokenizer, "sentence")
    assert tokenizer.eos_token_id in tokens
    for text in (".", "\n", "\n\n", '."', ".)", "...", " \n", "\r\n"):
        (token,) = tokenizer(f"a{text}").input_ids[1:]
        assert token in tokens, text
    for text in (",", ".,", " a", "'s", ":", "./", " (", "!"):
        assert tokenizer(f"a{text}").input_ids[1] not in tokens, text


def test_ending_without_eos_is_refused(tokenizer: Any) -> None:
    class WithoutEos:
        eos_token_id, name_or_path = None, "nameless"

    with pytest.raises(InputError, match=naming("nameless", "token")):
        ending_tokens(WithoutEos(), "eos")


SUBJECTS = {"Q1": (["France"], [["Paris"]]), "Q2": (["Japan"], [["Tokyo"]])}
CAPITALS = {**SUBJECTS, "Q3": (["Italy", "Italia"], [["Rome"]])}


@pytest.fixture
def countries() -> Facts:
    """Capitals, and two other relations; Paris is the object of one of them, too."""
    relations = make_facts(
        {
            "P36": (["The capital of [X] is [Y].", "[X]'s capital is [Y]"], CAPITALS),
            "P35": (["[X] is headed by [Y]"], {"Q2": (["Japan"], [["Naruhito"]])}),
            "P19": (["[X] was born in [Y]", "[Y] bore [X]"], {"Q9": (["Sartre"], [["Paris"]])}),
        }
    )
    label = pl.element().struct.field("labels")
    objects = pl.col("objects").list.eval(pl.struct(object_id=label.list.first(), labels=label))
    return sliced(replace(relations, pairs=relations.pairs.with_columns(objects)), Slice())


def of(facts: Facts, n: int = 9, seed: int = 0) -> dict[str, Chance]:
    """The chances of the capitals, by country."""
    names = dict(facts.pairs.select("pair_id", pl.col("subjects").list.first()).iter_rows())
    return {names[pair]: chance for pair, chance in chances(facts, "P36", n, seed=seed).items()}


def test_chances_are_clozes_of_other_subjects_and_of_other_relations(countries: Facts) -> None:
    for name, chance in of(countries).items():
        assert len(chance.subjects) == 2
        assert all("capital" in text for text in chance.subjects)
        assert not any(name in text for text in chance.subjects)
        assert set(chance.relations) == {f"{name} is headed by", f"{name} was born in"}


def test_chances_are_drawn_by_the_seed_whatever_the_order_of_facts(countries: Facts) -> None:
    chances_by_seed = [of(countries, 1, seed) for seed in range(20)]
    subjects = {(*chance["Japan"].subjects,) for chance in chances_by_seed}
    assert all(len(chance) == 1 for chance in subjects)
    assert len(subjects) > 2  # three clozes of France and Italy under two templates, and more
    # Those relations come first that the answer is an object of.
    assert all(chance["France"].relations == ["France was born in"] for chance in chances_by_seed)
    pairs, templates = countries.pairs.reverse(), countries.templates.reverse()
    assert of(replace(countries, pairs=pairs, templates=templates), 1) == chances_by_seed[0]


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
    facts = sliced(read_probed({"probing": table}), Slice())
    of_capitals = chances(facts, "P36", 4, seed=0)
    assert of_capitals["P36.1"].subjects == ["The Japanese government sits in"]
    assert of_capitals["P36.1"].relations == ["France works for"]
    base = facts.knowledge_base
    assert base is not None
    smaller_base = replace(base, entities=base.entities.filter(pl.col("entity_id") != "Q142"))
    assert (
        chances(replace(facts, knowledge_base=smaller_base), "P36", 4, seed=0)["P36.1"].relations
        == []
    )
    # The sentence on Japan does not name it: it is an opening of no other subject.
    other = chances(facts, "P108", 4, seed=0)["P108.3"]
    assert other == Chance([], ["As everybody knows, the capital of John Doe is"])
