"""Shown: prompts whose demonstrations have their answer or subject, against a loop over texts."""

import pytest

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.prompts.expansion import Expansion, Shown, expand, shown
from factsweep.operators.prompts.setting import Setting


@pytest.mark.parametrize(
    "setting",
    [Setting("template", 4), Setting("random", 4, scope="prompt"), Setting("zero-shot", 0)],
)
def test_shown_answers_are_those_of_a_loop(mini: Facts, setting: Setting) -> None:
    pairs = mini.pairs.rows_by_key("pair_id", named=True, unique=True)
    counts = []
    for expansion in expand(mini, setting, seed=1):
        expected = _by_hand(expansion, pairs)
        assert shown(expansion, mini.pairs) == expected
        counts.append(expected)
    assert any(each.objects for each in counts) == bool(setting.shots)


def _by_hand(expansion: Expansion, pairs: dict[str, dict[str, list[str]]]) -> Shown:
    contexts = expansion.contexts.rows_by_key("context_id", named=True, unique=True)
    objects = subjects = 0
    for prompt in expansion.prompts.iter_rows(named=True):
        context = contexts[prompt["context_id"]]
        known = {
            name
            for each in context["demonstrations"]
            for name in (*pairs[each]["subjects"], *_labels(pairs[each]))
            if name in context["text"]
        }
        asked = pairs[prompt["pair_id"]]
        objects += not known.isdisjoint(_labels(asked))
        subjects += not known.isdisjoint(asked["subjects"])
    return Shown(objects, subjects)


def _labels(pair: dict[str, list]) -> list[str]:  # type: ignore[type-arg]
    return [label for each in pair["objects"] for label in each["labels"]]
