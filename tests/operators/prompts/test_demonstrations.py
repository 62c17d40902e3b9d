"""Which facts are shown before a question: laws over random facts and seeds."""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chisquare

from factsweep.operators import seeds
from factsweep.operators.datasets.facts import Facts
from factsweep.operators.prompts import setting as settings
from factsweep.operators.prompts.expansion import expand
from factsweep.operators.prompts.setting import Setting
from tests.builders import facts as make_facts

Strategies = Callable[..., st.SearchStrategy[Facts]]
CONTEXTS = ("random", "relation", "template")
SCOPES = ("shared", "prompt")
SHOTS = 2
TWO = Setting("relation", SHOTS)
BY_CHANCE = 1e-4  # how rarely an even draw may look uneven
SETTINGS = [Setting(c, SHOTS, scope=s) for c in CONTEXTS for s in SCOPES]  # type: ignore[arg-type]
each_setting = pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: f"{s.name},{s.scope}")


def prompts(facts: Facts, setting: Setting, seed: int) -> Iterator[dict[str, Any]]:
    """Each prompt with its context's text and demonstrations."""
    for expansion in expand(facts, setting, seed=seed):
        yield from expansion.prompts.join(expansion.contexts, "context_id", "left").iter_rows(
            named=True
        )


def naive_demonstrations(pair: dict[str, Any], templates: list[str]) -> list[str]:
    """A pair in every template that it may be shown in."""
    name, label = pair["subjects"][0], pair["objects"][0]["labels"][0]
    sentences = [text.replace("[Y]", "[MASK]") for text in templates]
    return [f"Q: {name.join(text.split('[X]'))}\nA: {label}.\n" for text in sentences]


def draw_prompts(
    data: st.DataObject, facts: Strategies, setting: Setting
) -> tuple[Facts, list[Any]]:
    facts_ = data.draw(facts(min_pairs=SHOTS + 1))
    return facts_, list(prompts(facts_, setting, data.draw(st.integers(0, 99))))


@each_setting
@given(data=st.data())
def test_demonstrations_any_prompt_shows_distinct_pairs_without_its_own(
    setting: Setting, data: st.DataObject, random_facts: Strategies
) -> None:
    _, rows = draw_prompts(data, random_facts, setting)
    for row in rows:
        pair_ids = row["demonstrations"]
        assert len(pair_ids) == len(set(pair_ids)) == SHOTS
        assert row["pair_id"] not in pair_ids


@each_setting
@given(data=st.data())
def test_demonstrations_any_prompt_reads_as_pairs_and_templates_it_may_show(
    setting: Setting, data: st.DataObject, random_facts: Strategies
) -> None:
    facts, rows = draw_prompts(data, random_facts, setting)
    pairs = {pair["pair_id"]: pair for pair in facts.pairs.to_dicts()}
    texts = dict(facts.templates.select("template_id", "text").iter_rows())
    for row in rows:
        remainder = row["text"].removeprefix("Predict the [MASK] in each sentence in one word.\n")
        for pair in (pairs[pair_id] for pair_id in row["demonstrations"]):
            of_prompt = [texts[row["template_id"]]]
            any_of = [texts[t] for t in texts if t.startswith(f"{pair['relation_id']}.")]
            possible_texts = naive_demonstrations(
                pair, of_prompt if setting.context == "template" else any_of
            )
            remainder = next(
                remainder.removeprefix(text)
                for text in possible_texts
                if remainder.startswith(text)
            )
        assert remainder == ""


@pytest.mark.parametrize("scope", SCOPES)
def test_demonstrations_stay_in_their_relation_unless_they_are_random(
    mini: Facts, scope: Any
) -> None:
    for context in ("relation", "template"):
        for row in prompts(mini.of("P36"), Setting(context, 4, scope=scope), seed=1):
            assert {pair_id.partition(".")[0] for pair_id in row["demonstrations"]} == {"P36"}
    rows = prompts(mini, Setting("random", 4, scope=scope), seed=1)
    pair_ids = chain.from_iterable(row["demonstrations"] for row in rows)
    assert len({pair_id.partition(".")[0] for pair_id in pair_ids}) > 2


@pytest.mark.parametrize(
    ("context", "families"), [("random", 1), ("relation", 17), ("template", 170)]
)
def test_shared_contexts_are_one_more_than_the_shots_and_change_only_where_a_pair_is_shown(
    mini: Facts, context: Any, families: int
) -> None:
    parts = list(expand(mini, Setting(context, 4), seed=2))
    contexts = pl.concat(expansion.contexts for expansion in parts).unique()
    sizes = contexts.group_by(pl.col("context_id").str.split("~").list.first()).len()
    assert sizes["len"].to_list() == [5] * families
    assert contexts["context_id"].is_unique().all()
    is_moved = pl.col("context_id").str.contains("~")
    for expansion in parts:
        usual = expansion.contexts.filter(~is_moved)
        pair_ids = set(usual.explode("demonstrations")["demonstrations"])
        assert set(expansion.prompts.filter(is_moved)["pair_id"]) <= pair_ids


@pytest.mark.parametrize("context", CONTEXTS)
def test_fresh_demonstrations_differ_between_prompts(mini: Facts, context: str) -> None:
    rows = list(prompts(mini, Setting(context, 4, scope="prompt"), seed=0))  # type: ignore[arg-type]
    assert len({row["context_id"] for row in rows}) == len(rows) == 12_700
    assert len({row["text"] for row in rows}) > 0.99 * len(rows)


@pytest.fixture(scope="module")
def six_pairs() -> settings.Pool:
    pairs = {f"Q{i}": (["A"], [["x"]]) for i in range(6)}
    return settings.pool(make_facts({"P1": (["[X] [Y]", "[Y] [X]"], pairs)}), TWO)


def p_value_of_evenness(rows: NDArray[np.int64], n_kinds: int) -> float:
    counts = np.unique(rows, axis=0, return_counts=True)[1]
    assert len(counts) == n_kinds
    return float(chisquare(counts).pvalue)


def test_shared_draw_over_many_seeds_is_even(six_pairs: settings.Pool) -> None:
    draws = [settings.shared_draw(six_pairs, TWO, ["P1"], "P1", seed) for seed in range(6000)]
    assert p_value_of_evenness(np.array([d.pairs[0] for d in draws]), 6 * 5) > BY_CHANCE
    assert p_value_of_evenness(np.array([d.templates[0] for d in draws]), 2 * 2) > BY_CHANCE


def test_shared_draw_of_many_families_is_that_of_each(six_pairs: settings.Pool) -> None:
    families = ["P1.001", "P1.000"]
    for context in ("relation", "template"):
        setting = Setting(context, SHOTS)
        draws = [settings.shared_draw(six_pairs, setting, [f], "P1", 0) for f in families]
        joint_draw = settings.shared_draw(six_pairs, setting, families, "P1", 0)
        for name in settings.Draw._fields:
            expected = np.concatenate([getattr(draw, name) for draw in draws])
            np.testing.assert_array_equal(getattr(joint_draw, name), expected)


def test_fresh_draw_over_many_prompts_is_even_without_the_target(six_pairs: settings.Pool) -> None:
    rows = seeds.keys(0, "prompt", map(str, range(20_000)))
    target, template = np.full(20_000, 3), np.zeros(20_000, dtype=np.int64)
    draw = settings.fresh_draw(six_pairs, TWO, "P1", target, template, rows)
    assert not (draw.pairs == 3).any()
    assert p_value_of_evenness(draw.pairs, 5 * 4) > BY_CHANCE
    assert p_value_of_evenness(draw.templates, 2 * 2) > BY_CHANCE
