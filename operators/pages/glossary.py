"""What the numbers on a page mean, one line each; docs/metrics.md has the formulas."""

from collections.abc import Iterable
from typing import NamedTuple

from factsweep.operators.metrics.shared.metric import Metric

_BETTER = {"higher": "higher is better", "lower": "lower is better", "zero": "best at 0", None: ""}
_ARROWS = {"higher": "↑", "lower": "↓", "zero": "→0", None: ""}
# Not a number, but a row of the card all the same.
_SCOPE = Metric(
    "scope",
    heading="scope",
    says="whether prompts share their demonstrations, or each has its own draw",
)


class Term(NamedTuple):
    """A metric under its heading: name, meaning, and better direction in words and as a sign."""

    metric: str
    meaning: str
    better: str
    arrow: str


def terms_of(headings: Iterable[str], metrics: Iterable[Metric]) -> dict[str, Term]:
    """The term of each heading that has one: `range draw=pair` has that of `range`.

    >>> sd = Metric("fluctuation_sd", heading="SD", says="how far accuracy moves", better="lower")
    >>> terms_of(["SD draw=pair", "unheard of"], [sd])
    {'SD draw=pair': Term(metric='fluctuation_sd', meaning='how far accuracy moves', \
better='lower is better', arrow='↓')}
    """
    known = {metric.heading: metric for metric in (_SCOPE, *metrics) if metric.says}
    found = {}
    for heading in headings:
        words = heading.split(" ")
        starts = (" ".join(words[:n]) for n in range(len(words), 0, -1))
        metric = next((known[start] for start in starts if start in known), None)
        if metric is not None:
            better = metric.better
            found[heading] = Term(metric.name, metric.says, _BETTER[better], _ARROWS[better])
    return found
