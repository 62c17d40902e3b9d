"""What is estimated of a full run, and its interval; that of shares holds where events are rare.

A share is of what is right, of what is one word, of what matches. Its variance, as estimated from a
sample, is 0 where the sample has no event of its kind: nothing right, nothing wrong, or no two
prompts of a fact that were answered differently. Value ± error would then say that the full run has
none either. Two corrections, both of counts:

- The variance is compared with that of as many independent answers, p(1 − p)/n; their ratio, the
  design effect, is shrunk to 1 as if two further events had been seen (as Agresti and Coull 1998
  add two). Where nothing was seen the sample counts as n independent answers, and its variance
  never is less than that of two events.
- The interval is Wilson's (1927) with n over the design effect answers (Korn and Graubard 1998;
  Franco, Little, Louis and Slud 2019 compare it with others in complex samples and find that it
  holds). It ends where p would be refuted, with the variance that p has rather than the value:
  of n answers of which none is right the upper end is 3.84/(n + 3.84), next to the rule of three.

Where many were asked and neither is rare, this is value ± t · error.
"""

from typing import NamedTuple

import numpy as np

UNSEEN = 2.0  # events
_DIGITS = 14


class Estimated(NamedTuple):
    """A number of the full run with its 95 % interval; where there is none, `why` says why."""

    value: float | None
    full_low: float | None
    full_high: float | None
    why: str | None = None

    @property
    def width(self) -> float | None:
        """How wide the interval is; null where there is none."""
        if self.full_low is None or self.full_high is None:
            return None
        return self.full_high - self.full_low


def exactly(value: float) -> Estimated:
    """A number that is known, since all prompts were asked."""
    return Estimated(value, value, value)


def within_bounds(value: float, half: float) -> Estimated:
    """A share of the full run, which is between 0 and 1 wherever its interval would reach.

    >>> within_bounds(0.25, 0.5)
    Estimated(value=0.25, full_low=0.0, full_high=0.75, why=None)
    """
    return Estimated(value, max(0.0, value - half), min(1.0, value + half))


def half_width(variance: float, degrees: float) -> float:
    """Half of an interval of 95 %; Student's, of the variance's degrees of freedom."""
    from scipy.stats import t

    return float(t.isf(0.025, max(1.0, degrees)) * np.sqrt(max(0.0, variance)))


def unseen(n: float, left: float) -> float:
    """The variance of a share of `n` by events that were not seen; `left` was not asked."""
    return UNSEEN * left / n**2


def share_interval(
    value: float, variance: float, degrees: float, *, n: float, left: float
) -> Estimated:
    """The 95 % interval of a share of the full run, from the share among `n` of a sample.

    `left` is the part of the full run that was not asked, which the variance has in it.

    >>> share_interval(0.0, 0.0, 1000, n=100, left=1.0)[:3]
    (0.0, 0.0, 0.03707...)
    """
    from scipy.stats import t

    value = round(float(value), _DIGITS)  # sums of weights end next to 1
    independent = value * (1 - value) * left / n
    more = unseen(n, left)
    effect = (max(0.0, variance) + more) / (independent + more)
    wilson = float(t.ppf(0.975, max(1.0, degrees))) ** 2 * left * effect / n
    half = np.sqrt(wilson * (value * (1 - value) + wilson / 4)) / (1 + wilson)
    middle = (value + wilson / 2) / (1 + wilson)
    low, high = max(0.0, float(middle - half)), min(1.0, float(middle + half))
    return Estimated(value, min(low, value), max(high, value))
