"""Budgets of hours, which are the prompts that they pay for; targets of estimates."""

from collections.abc import Callable

import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.cluster.hardware import hardware
from factsweep.pipeline.config.budget import Target, target
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.decoding.costs import paid_for
from tests.messages import naming

GIVEN = ("budget=1%", "decoding.engine=fake")


@pytest.mark.parametrize(
    "text", ["acc_at_1±0.003", "'acc_at_1±0.003'", "acc_at_1+-0.003", "acc_at_1 ± .003"]
)
def test_target_is_read_as_it_is_typed(text: str) -> None:
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


Settings = Callable[..., Run]


def test_paid_for_hours_are_the_prompts_at_the_known_rate(small_settings: Settings) -> None:
    given = small_settings("budget=0.5 core-hours", "cluster.answers_per_s=0.01")
    n = 0.5 * 3600 * 0.01 / hardware(given).cores
    assert paid_for(given).budget == str(int(n))


def test_paid_for_hours_of_several_settings_are_those_of_all(small_settings: Settings) -> None:
    one, two = (
        small_settings("budget=9 core-hours", "cluster.answers_per_s=0.01", *more)
        for more in (["prompt=zero-shot"], ["sweep=demo"])
    )
    assert len(two.settings) == 2
    assert paid_for(two).budget == str(int(str(paid_for(one).budget)) // 2)


@pytest.mark.parametrize("budget", ["1%", "30", "2k"])
def test_paid_for_prompts_stay_as_they_are(small_settings: Settings, budget: str) -> None:
    given = small_settings(f"budget={budget}")
    assert paid_for(given) is given


@pytest.mark.parametrize(
    ("budget", "more", "problem"),
    [
        ("2 GPU-hours", (), "generations of tiny .* were never measured on fake engine"),
        ("2 GPU-hours", ("cluster.answers_per_s=1",), "use no GPU-hours here; give core-hours"),
        ("0.00001 core-hours", ("cluster.answers_per_s=1",), "pays for no prompt; one takes"),
        ("2 hours", (), "or hours such as 2 GPU-hours or 10 core-hours"),
    ],
)
def test_paid_for_hours_that_pay_for_nothing_known_are_refused(
    small_settings: Settings, budget: str, more: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        paid_for(small_settings(f"budget={budget}", *more))


@pytest.mark.parametrize("text", ["0%", "101%", "many", "5kk"])
def test_budget_that_is_none_is_refused(small_settings: Settings, text: str) -> None:
    with pytest.raises(InputError, match=naming("1%")):
        small_settings(f"budget={text}")
