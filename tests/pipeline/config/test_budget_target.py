"""Targets of estimates."""

import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.budget import Target
from factsweep.pipeline.config.settings import load
from tests.messages import naming

GIVEN = ("budget=1%", "decoding.engine=fake")


@pytest.mark.parametrize(
    "text", ["acc_at_1±0.003", "'acc_at_1±0.003'", "acc_at_1+-0.003", "acc_at_1 ± .003"]
)
def test_target_is_read_as_it_is_typed(text: str) -> None:
    from factsweep.pipeline.config.budget import target

    given = load([*GIVEN, f"target={text}"]).target
    assert given is not None
    assert target(given, ["acc_at_1"]) == Target("acc_at_1", 0.003)


REFUSED = {
    "acc±0.003": "the metrics that can be a target are acc_at_1, one_word_ratio, consist",
    "acc_at_1±0": "more than 0 and less than 1, such as acc_at_1±0.003",
    "acc_at_1±many": "it must be a metric and half the width of its interval",
    "acc_at_1": "it must be a metric and half the width of its interval",
    "acc_at_1±nan": "it must be a metric and half the width of its interval",
    "acc_at_1±5": "more than 0 and less than 1",
}


@pytest.mark.parametrize("text", REFUSED)
def test_target_that_is_none_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(InputError, match=REFUSED[text]) as error:
        load([*GIVEN, f"target={text}"])
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value)


def test_targets_of_kamel_are_its_three_numbers() -> None:
    with pytest.raises(InputError, match=naming("precision, recall, f1")):
        load([*GIVEN, "benchmark=kamel-mini", "target=acc_at_1±0.003"])


def test_target_without_a_budget_is_refused() -> None:
    with pytest.raises(InputError, match=naming("target=acc_at_1±0.1", "budget=", "give")):
        load(["target=acc_at_1±0.1"])
    assert load(["target=null"]).target is None
