"""Entities as TF-IDF vectors over bags of features (section 3.3).

The bag of an entity e: e itself; each r, each o and each (r, o) of the triples (e, r, o). Each of
them is in the bag once. An entity is the same feature as itself and as another's object. Weights
are scikit-learn's defaults: idf = ln((1 + n) / (1 + df)) + 1, vectors of length 1.
"""

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from operators.knowledge_base.knowledge_base import KnowledgeBase


def vectors(base: KnowledgeBase) -> csr_matrix:
    """One row per entity in the order of `base.entities`, one column per feature; sparse."""
    from sklearn.feature_extraction.text import TfidfTransformer

    bags = _bags(base)
    places, columns = bags["row"].to_numpy(), bags["column"].to_numpy()
    shape = (base.entities.height, int(columns.max(initial=-1)) + 1)
    marks = csr_matrix((np.ones(bags.height), (places, columns)), shape=shape)
    weighted: csr_matrix = TfidfTransformer().fit_transform(marks)
    return weighted


def _bags(base: KnowledgeBase) -> pl.DataFrame:
    """The features of each entity: its row, and the column of each feature, which equal ones share.

    A feature is a number: that of its relation (0: none) times more than there are entities, plus
    that of its entity (0: none).
    """
    ids = base.entities.select(subject_id="entity_id").with_row_index("row")
    triples = base.triples.select("subject_id", "relation_id", "object_id")
    triples = triples.join(ids, on="subject_id")
    named = pl.concat([triples["object_id"], ids["subject_id"]]).rank("dense").cast(pl.Int64)
    limit = int(named.max() or 0) + 1  # type: ignore[arg-type]
    itself = ids.select("row", feature=named.tail(ids.height))
    triples = triples.select(
        "row",
        r=pl.col("relation_id").rank("dense").cast(pl.Int64) * limit,
        o=named.head(len(triples)),
    )
    bags = [triples.select("row", feature=each) for each in ("r", "o", pl.col("r") + pl.col("o"))]
    found = pl.concat([itself, *bags]).unique()
    return found.select(
        pl.col("row").cast(pl.Int64), column=pl.col("feature").rank("dense").cast(pl.Int64) - 1
    )
