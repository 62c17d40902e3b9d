"""Semantics: how much the meanings of a relation's templates differ."""

import numpy as np
from numpy.typing import NDArray

from factsweep.operators.metrics.data_set.pairwise import mean_distance


def semantics(embeddings: NDArray[np.floating]) -> float | None:
    """Average over all pairs of texts the L2 distance of their embeddings (texts, dimensions).

    None for fewer than two texts. In units of the encoder: numbers of two encoders cannot be
    compared. Source: BELIEF, appendix B.1, "Semantics" (there of BERT-large).

    >>> semantics(np.array([[0.0, 0.0], [3.0, 4.0]]))
    5.0
    """
    return mean_distance(embeddings, "euclidean")
