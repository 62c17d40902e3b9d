"""A target: the metric whose interval shall be narrow, and how narrow."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.suggestion import suggestion

_TEXT = re.compile(r"\s*(?P<metric>\w+)\s*(±|\+/?-)\s*(?P<half_width>\d*\.?\d+)\s*")


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
    found = _TEXT.fullmatch(given)
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
