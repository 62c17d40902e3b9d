"""The mean distance of all unordered pairs of points."""

from typing import Any, Literal

from numpy.typing import NDArray


def mean_distance(points: NDArray[Any], metric: Literal["jaccard", "euclidean"]) -> float | None:
    """Average the distance over the unordered pairs of rows; None for fewer than two rows.

    `points` is (points, dimensions); Boolean for `jaccard`, where two empty rows are at distance 0.

    >>> import numpy as np
    >>> mean_distance(np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 4.0]]), "euclidean")
    3.3333333333333335
    """
    from scipy.spatial.distance import pdist

    return float(pdist(points, metric).mean()) if len(points) > 1 else None
