"""A race of models: those go on being asked whose place is not decided yet.

All are asked a share of the prompts; those that are not decided are asked twice as many, and so
on until all prompts. Two models are compared on the prompts that both were asked, answer by answer
(`paired.py`): blocking (Moore and Lee 1994). At each of k looks each of m gaps has an interval that
misses with a chance of error / (k · m), so that with 1 − error none of all that are ever looked at
misses, whenever one stops: successive elimination (Even-Dar, Mannor and Mansour 2006), with
intervals of paired samples in place of Hoeffding's. Of all prompts a gap is known.
"""

import numpy as np
from numpy.typing import NDArray

Better = NDArray[np.bool_]  # whether a row is certainly better than a column


def shares(first: float) -> list[float]:
    """The share of the prompts at each look.

    >>> shares(0.3)
    [0.3, 0.6, 1.0]
    """
    found = [first]
    while found[-1] < 1:
        found.append(min(1.0, 2 * found[-1]))
    return found


def error_of_each(error: float, n_models: int, n_settings: int, n_looks: int) -> float:
    """How often one interval may miss, so that all do not with 1 − error.

    >>> error_of_each(0.05, n_models=5, n_settings=1, n_looks=5)
    0.001
    """
    return error / (max(1, n_looks) * n_settings * max(1, n_models * (n_models - 1) // 2))


def undecided(better: Better, n_top: int | None) -> list[int]:
    """Whose place is not decided: in the order of all, or in or outside of the best `n_top`."""
    if n_top is None:
        told = better | better.T | np.eye(len(better), dtype=np.bool_)
        return [int(each) for each in np.flatnonzero(~told.all(1))]
    left, places = list(range(len(better))), n_top
    while True:
        among = better[np.ix_(left, left)]
        inside, outside = among.sum(1) >= len(left) - places, among.sum(0) >= places
        if not (inside | outside).any():
            return left
        places -= int(inside.sum())
        left = [left[each] for each in np.flatnonzero(~(inside | outside))]
