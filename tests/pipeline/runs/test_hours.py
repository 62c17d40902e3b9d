"""A budget of hours: the prompts that they pay for."""

from collections.abc import Callable

import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.cluster.hardware import hardware
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding.costs import paid_for

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
