"""A budget: how many of a setting's prompts are asked; and a target: how exact it is to be."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from factsweep.operators.errors import InputError
from factsweep.operators.wording import count, suggestion
from factsweep.pipeline.config.run import Run

_TEXT = re.compile(r"(?P<number>\d+(\.\d+)?)((?P<unit>%|k|M)?|\s*(?P<of>GPU|core)-hours?)")
_TARGET = re.compile(r"\s*(?P<metric>\w+)\s*(±|\+/?-)\s*(?P<half_width>\d*\.?\d+)\s*")
_TIMES = {None: 1, "k": 1000, "M": 1_000_000}


@dataclass(frozen=True)
class Budget:
    """A share of the prompts (0 to 1), a number of them, or hours of a `unit`; others are null."""

    share: float | None
    n_prompts: int | None
    hours: float | None = None
    unit: Literal["GPU", "core"] | None = None

    def of(self, n_prompts: int) -> int:
        """How many of so many prompts it is."""
        if self.share is not None:
            return round(self.share * n_prompts)
        return min(n_prompts, self.n_prompts or 0)


def budget(given: str | int) -> Budget:
    """Read a budget as it is given.

    Raises:
        InputError: it is none.

    >>> budget("1%").share, budget("100k").n_prompts, budget(5000).n_prompts
    (0.01, 100000, 5000)
    >>> budget("1.5 GPU-hours").hours, budget("1 core-hour").unit
    (1.5, 'core')
    """
    found = _TEXT.fullmatch(str(given))
    number = float(found["number"]) if found else 0.0
    if not found or number <= 0 or (found["unit"] == "%" and number > 100):
        raise InputError(
            f"budget={given}; it must be a share of the prompts such as 1%, a number of them such "
            "as 5000 or 100k, or hours such as 2 GPU-hours or 10 core-hours."
        )
    if found["of"]:
        return Budget(None, None, number, "GPU" if found["of"] == "GPU" else "core")
    if found["unit"] == "%":
        return Budget(number / 100, None)
    return Budget(None, round(number * _TIMES[found["unit"]]))


def budget_lines(run: Run, title: str, n: int, whole: int, pairs: int) -> Iterator[str]:
    """What a budget is of a setting, `n` of its prompts; and that they are few, where they are."""
    yield f"{run.budget}: {n:,} of {count(whole, 'prompt')} of {title}"
    sampling = run.method.measure.sampling
    if n < 2 * pairs <= whole and sampling is not None and not sampling.whole_pairs:
        yield (
            f"too few to ask each of {pairs:,} facts twice: only some facts are asked, and the "
            "fluctuation cannot be estimated"
        )


@dataclass(frozen=True)
class Target:
    """A metric, and half the width of the interval that is asked for."""

    metric: str
    half_width: float


def target(given: str, metrics: Sequence[str]) -> Target:
    """Read a target as it is given; `metrics` are those that can be one.

    Raises:
        InputError: it is none.

    >>> target("acc_at_1±0.003", ["acc_at_1"]) == target("acc_at_1 +- .003", ["acc_at_1"])
    True
    """
    found = _TARGET.fullmatch(given)
    half_width = float(found["half_width"]) if found else 0.0
    if not found or not 0 < half_width < 1:
        raise InputError(
            f"target={given}; it must be a metric and half the width of its interval, more than 0 "
            "and less than 1, such as acc_at_1±0.003 or acc_at_1+-0.003."
        )
    if found["metric"] not in metrics:
        known = ", ".join(metrics) or "none of this benchmark"
        raise InputError(
            f"target={given}; the metrics that can be a target are {known}."
            f"{suggestion(found['metric'], metrics)}"
        )
    return Target(found["metric"], half_width)
