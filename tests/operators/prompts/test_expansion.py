"""Expansion, against nested loops over the facts."""

from collections.abc import Callable
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.expansion import expand
from factsweep.operators.prompts.setting import Setting
from factsweep.operators.schemas import SCHEMAS, conform
from tests.messages import naming

Strategies = Callable[..., st.SearchStrategy[Facts]]
ZERO_SHOT = Setting("zero-shot", 0)
SETTINGS = [
    ZERO_SHOT,
    *(
        Setting(c, 2, scope=s)
        for c in ("random", "relation", "template")
        for s in ("shared", "prompt")
    ),
    Setting("template", 1, "question"),
    Setting("random", 1, "question", scope="prompt"),
    Setting("relation", 1, templates="manual"),
    Setting("template", 1, templates="question"),
]
ORDER = ["template_id", "context_id", "pair_id", "subject_index"]
each_setting = pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: f"{s.name},{s.variant}")


def expanded(facts: Facts, setting: Setting, seed: int = 0) -> pl.DataFrame:
    """All prompts, in order, with their context and whole text."""
    parts = []
    for each in expand(facts, setting, seed=seed):
        contexts = each.contexts.rename({"text": "context"})
        parts.append(each.prompts.join(contexts, "context_id", "left", maintain_order="left"))
    return pl.concat(parts).with_columns(text=pl.concat_str("context", "query"))


def naive_queries(facts: Facts, setting: Setting) -> dict[str, str]:
    found = {}
    for template in facts.templates.to_dicts():
        text, number = template["text"], template["template_id"].partition(".")[2]
        if setting.templates == "manual" and template["origin"] != "manual":
            continue
        asks = setting.style == "question"
        if (asks or setting.templates == "question") and template["style"] != "question":
            continue
        if asks:
            text = text[: text.index("?") + 1]
        asked = text.replace("[Y]", "[MASK]")
        for pair in facts.pairs.filter(relation_id=template["relation_id"]).to_dicts():
            for index, name in enumerate(pair["subjects"]):
                prompt_id = f"{pair['pair_id']}.{number}.{index}"
                found[prompt_id] = f"Q: {name.join(asked.split('[X]'))}\nA:"
    return found


@each_setting
@given(data=st.data())
def test_expand_any_facts_equals_nested_loops(
    setting: Setting, data: st.DataObject, random_facts: Strategies
) -> None:
    facts = data.draw(random_facts(min_pairs=3))
    prompts = expanded(facts, setting)
    assert dict(prompts.select("prompt_id", "query").iter_rows()) == naive_queries(facts, setting)
    assert prompts["prompt_id"].is_unique().all()


@each_setting
def test_expand_mini_set_stands_in_prefix_order(mini: Facts, setting: Setting) -> None:
    for each in expand(mini, setting, seed=1):
        assert each.prompts.equals(each.prompts.sort(ORDER))
        assert set(each.contexts["context_id"]) == set(each.prompts["context_id"])


@each_setting
def test_expand_mini_set_conforms_to_the_schemas(mini: Facts, setting: Setting) -> None:
    each = next(expand(mini, setting, seed=1))
    assert conform(each.prompts, "prompts").schema == SCHEMAS["prompts"]
    assert conform(each.contexts, "contexts").schema == SCHEMAS["contexts"]


@each_setting
def test_expand_same_seed_any_order_of_rows_gives_the_same_prompts(
    mini: Facts, setting: Setting
) -> None:
    part = Facts(*(t.filter(pl.col("relation_id").is_in(["P30", "P36"])) for t in tables(mini)))
    shuffled = replace(
        part,
        templates=part.templates.sample(fraction=1, shuffle=True, seed=2),
        pairs=part.pairs.sample(fraction=1, shuffle=True, seed=3),
    )
    assert expanded(shuffled, setting, seed=5).equals(expanded(part, setting, seed=5))


def tables(facts: Facts) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    return facts.relations, facts.templates, facts.pairs


@pytest.mark.slow
@each_setting
def test_expand_other_seed_draws_others(mini: Facts, setting: Setting) -> None:
    one, other = expanded(mini, setting, seed=0), expanded(mini, setting, seed=1)
    ranks = ["prompt_id", "calibration_rank"]
    assert not one.sort("prompt_id").select(ranks).equals(other.sort("prompt_id").select(ranks))
    assert (set(one["text"]) == set(other["text"])) == (setting == ZERO_SHOT)


@given(data=st.data())
def test_same_as_zero_shot_is_the_first_prompt_of_the_text(
    data: st.DataObject, random_facts: Strategies
) -> None:
    prompts = expanded(data.draw(random_facts()), ZERO_SHOT)
    first: dict[str, str] = {}
    for prompt_id, text, same_as in prompts.select("prompt_id", "text", "same_as").iter_rows():
        assert same_as == first.get(text)
        first.setdefault(text, prompt_id)


@pytest.mark.slow
@each_setting
@given(data=st.data())
def test_same_as_any_setting_names_an_earlier_prompt_of_equal_text(
    setting: Setting, data: st.DataObject, random_facts: Strategies
) -> None:
    prompts = expanded(data.draw(random_facts(min_pairs=3)), setting).with_row_index()
    first = prompts.filter(pl.col("same_as").is_null())
    later = prompts.filter(pl.col("same_as").is_not_null())
    joined = later.join(first, left_on="same_as", right_on="prompt_id")
    assert joined.height == later.height
    assert joined.select((pl.col("text") == pl.col("text_right")).all()).item()
    assert joined.select((pl.col("index_right") < pl.col("index")).all()).item()


def test_same_as_equal_texts_across_relations_share_one_answer(
    make_facts: Callable[..., Facts],
) -> None:
    relation = (["[X] is in [Y]."], {"Q1": (["A", "B"], [["x"]]), "Q2": (["A"], [["y"]])})
    prompts = expanded(make_facts({"P1": relation, "P2": relation}), ZERO_SHOT)
    assert prompts.filter(pl.col("same_as").is_null())["prompt_id"].to_list() == [
        "P1.Q1.000.0",
        "P1.Q1.000.1",
    ]


@each_setting
@given(data=st.data())
def test_calibration_any_facts_rank_one_prompt_a_pair(
    setting: Setting, data: st.DataObject, random_facts: Strategies
) -> None:
    facts = data.draw(random_facts(min_pairs=3))
    ranked = expanded(facts, setting).drop_nulls("calibration_rank")
    assert sorted(ranked["pair_id"]) == sorted(facts.pairs["pair_id"])
    assert sorted(ranked["calibration_rank"]) == list(range(facts.pairs.height))


def test_calibration_smaller_sample_lies_in_the_larger(mini: Facts) -> None:
    ranked = expanded(mini, ZERO_SHOT).drop_nulls("calibration_rank")
    small, large = (set(ranked.filter(pl.col("calibration_rank") < n)["pair_id"]) for n in (50, 90))
    assert (len(small), len(large)) == (50, 90)
    assert small < large


def test_calibration_sampled_pairs_stay_when_names_are_added(mini: Facts) -> None:
    fewer = replace(mini, pairs=mini.pairs.with_columns(pl.col("subjects").list.head(1)))
    ranks = ["pair_id", "calibration_rank"]
    one, other = (
        expanded(f, ZERO_SHOT).drop_nulls("calibration_rank").select(ranks).sort(ranks)
        for f in (mini, fewer)
    )
    assert one.equals(other)


def test_calibration_templates_are_chosen_evenly(mini: Facts) -> None:
    ranked = expanded(mini, ZERO_SHOT, seed=4).drop_nulls("calibration_rank")
    numbers = ranked["template_id"].str.tail(3).value_counts()["count"]
    assert (len(numbers), numbers.sum()) == (10, 553)
    assert chisquare(numbers).pvalue > 1e-4


@pytest.mark.parametrize("scope", ["shared", "prompt"])
@pytest.mark.parametrize("context", ["random", "relation", "template"])
def test_expand_too_few_pairs_names_relation_and_number(
    make_facts: Callable[..., Facts], context: str, scope: str
) -> None:
    facts = make_facts({"P1": (["[X] [Y]"], {f"Q{i}": (["A"], [["x"]]) for i in range(3)})})
    assert list(expand(facts, Setting(context, 2, scope=scope), seed=0))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=naming("4 pairs", "relation P1", "ask")):
        list(expand(facts, Setting(context, 3, scope=scope), seed=0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "setting", [Setting("zero-shot", 0, "question"), Setting("random", 1, "question")]
)
def test_expand_relation_without_question_is_refused(
    make_facts: Callable[..., Facts], setting: Setting
) -> None:
    pairs = {"Q1": (["A"], [["x"]]), "Q2": (["B"], [["y"]])}
    facts = make_facts({"P1": (["Where is [X]? [Y]."], pairs), "P2": (["[X] [Y]"], pairs)})
    with pytest.raises(InputError, match=naming("relation P2", "prompt.style=question")):
        list(expand(facts, setting, seed=0))
