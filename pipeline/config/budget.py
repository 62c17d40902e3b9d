"""A budget: how many of a setting's prompts are asked; a target: the width of an interval."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from factsweep.operators.errors import InputError
from factsweep.operators.tables.shared.numbers import SHARE
from factsweep.operators.wording import count, suggestion
from factsweep.pipeline.config.run import Run

_TEXT = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>%|k|M)?")
_TARGET = re.compile(r"\s*(?P<metric>\w+)\s*(±|\+/?-)\s*(?P<half_width>\d*\.?\d+)\s*")
_TIMES = {None: 1, "k": 1000, "M": 1_000_000}


@dataclass(frozen=True)
class Budget:
    """A share of the prompts (0 to 1), or a number of them; the other is null."""

    share: float | None
    n_prompts: int | None

    def of(self, n_prompts: int) -> int:
        """The number of sampled prompts of `n_prompts`."""
        if self.share is not None:
            return round(self.share * n_prompts)
        return min(n_prompts, self.n_prompts or 0)


def parse_budget(text: str | int) -> Budget:
    """Parse a budget.

    Raises:
        InputError: the text is no budget.

    >>> parse_budget("1%").share, parse_budget("100k").n_prompts, parse_budget(5000).n_prompts
    (0.01, 100000, 5000)
    """
    match = _TEXT.fullmatch(str(text))
    number = float(match["number"]) if match else 0.0
    if not match or number <= 0 or (match["unit"] == "%" and number > 100):
        raise InputError(
            f"budget={text}; it must be a share of the prompts such as 1%, or a number of them, "
            "such as 5000 or 100k."
        )
    if match["unit"] == "%":
        return Budget(number / 100, None)
    return Budget(None, round(number * _TIMES[match["unit"]]))


def describe_budget(run: Run, title: str, n: int, n_full: int, pairs: int) -> Iterator[str]:
    """The size of a setting's budget, `n` of its prompts, and a warning if they are few."""
    yield f"{run.budget}: {n:,} of {count(n_full, 'prompt')} of {title}"
    sampling = run.method.measure.sampling
    if n < 2 * pairs <= n_full and sampling is not None and not sampling.whole_pairs:
        yield (
            f"too few to ask each of {pairs:,} facts twice: only some facts are asked, and the "
            "fluctuation cannot be estimated"
        )


@dataclass(frozen=True)
class Target:
    """A metric, and half the width of the interval to reach."""

    metric: str
    half_width: float

    def describe(self, value: float, half_width: float, source: str) -> str:
        """The metric's value, half its interval from a `source`, and how it compares.

        >>> Target("acc_at_1", 0.01).describe(0.5, 0.02, "1% of the prompts")
        'acc_at_1 is .5000 ± .0200 from 1% of the prompts, wider than ±.0100'
        """
        compared = "no wider" if half_width <= self.half_width else "wider"
        interval = f"{SHARE.text(value)} ± {SHARE.text(half_width)}"
        goal = f"±{SHARE.text(self.half_width)}"
        return f"{self.metric} is {interval} from {source}, {compared} than {goal}"


def parse_target(text: str, metrics: Sequence[str], field: str = "target") -> Target:
    """Parse the target of a field; `metrics` can be one.

    Raises:
        InputError: the text is no target.

    >>> texts = ("acc_at_1±0.003", "acc_at_1 +- .003")
    >>> len({parse_target(text, ["acc_at_1"]) for text in texts}) == 1
    True
    """
    match = _TARGET.fullmatch(text)
    half_width = float(match["half_width"]) if match else 0.0
    if not match or not 0 < half_width < 1:
        raise InputError(
            f"{field}={text}; it must be a metric and half the width of its interval, more than 0 "
            "and less than 1, such as acc_at_1±0.003 or acc_at_1+-0.003."
        )
    if match["metric"] not in metrics:
        names = ", ".join(metrics) or "none of this benchmark"
        raise InputError(
            f"{field}={text}; the metrics that can be a target are {names}."
            f"{suggestion(match['metric'], metrics)}"
        )
    return Target(match["metric"], half_width)
