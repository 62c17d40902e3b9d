"""Syntax: how much the dependency trees of a relation's templates differ."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from factsweep.operators.errors import InputError
from factsweep.operators.metrics.data_set.pairwise import mean_distance


class Centrality(NamedTuple):
    """The most central word of a tree: of all words, the highest degree and closeness (0 to 1)."""

    degree: float
    closeness: float


def syntax(trees: Sequence[Sequence[int]]) -> float | None:
    """Average over all pairs of trees the Euclidean distance of their `centrality` (0 to √2).

    A tree is the place of each word's head; a root is its own head. None for fewer than two trees.
    Source: BELIEF, appendix B.1, "Syntax", after Oya 2020; docs/metrics.md says how we read it.

    >>> chain, star = [1, 2, 3, 4, 4], [0, 0, 0, 0, 0]
    >>> round(syntax([chain, star]), 4)
    0.6009
    """
    return mean_distance(np.array([centrality(heads) for heads in trees]), "euclidean")


def centrality(heads: Sequence[int]) -> Centrality:
    """Where a tree lies between a chain and a star.

    Of n words, a word's degree centrality is its heads and dependents / (n - 1), and its closeness
    centrality (n - 1) / the sum of its distances to all other words (Freeman 1978). A later
    sentence's root hangs from the first root. A tree of one word has 0 and 0.

    Raises:
        InputError: the heads make no tree.

    >>> centrality([1, 2, 3, 4, 4])
    Centrality(degree=0.5, closeness=0.6666666666666666)
    >>> centrality([0, 0, 0, 0, 0])
    Centrality(degree=1.0, closeness=1.0)
    """
    n = len(heads)
    if n < 2:
        return Centrality(0.0, 0.0)
    words = np.arange(n)
    head = np.asarray(heads)
    roots = words[head == words]
    if not roots.size:
        raise InputError(f"heads {list(heads)} have no root; a root is its own head.")
    head = np.where(head == words, roots[0], head)
    joined = words[words != roots[0]]
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    edges = csr_array((np.ones(n - 1), (joined, head[joined])), shape=(n, n))
    distances = shortest_path(edges, directed=False, unweighted=True)
    if not np.isfinite(distances).all():
        raise InputError(f"heads {list(heads)} make no tree; they have a circle.")
    degrees = np.bincount(joined, minlength=n) + np.bincount(head[joined], minlength=n)
    return Centrality(float(degrees.max() / (n - 1)), float((n - 1) / distances.sum(axis=1).min()))
