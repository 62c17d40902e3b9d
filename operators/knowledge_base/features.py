"""Entities as TF-IDF vectors over bags of features (section 3.3).

The bag of an entity e: e itself; each r, each o and each (r, o) of the triples (e, r, o). Each of
them is in the bag once. An entity is the same feature as itself and as another's object. Weights
are scikit-learn's defaults: idf = ln((1 + n) / (1 + df)) + 1, vectors of length 1.
"""

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from factsweep.operators.knowledge_base.knowledge_base import KnowledgeBase

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_Numbers = NDArray[np.int64]


def vectors(base: KnowledgeBase) -> "csr_matrix":
    """One row per entity in the order of `base.entities`, one column per feature; sparse."""
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfTransformer

    places, columns = _bags(base)
    shape = (base.entities.height, int(columns.max(initial=-1)) + 1)
    marks = csr_matrix((np.ones(places.size), (places, columns)), shape=shape)
    marks.data[:] = 1.0  # what stands twice was added up
    weighted: csr_matrix = TfidfTransformer().fit_transform(marks)
    return weighted


def _bags(base: KnowledgeBase) -> tuple[_Numbers, _Numbers]:
    """The features of each entity: its row, and the column of each feature, which equal ones share.

    The columns are those of entities and other objects, then of relations, then of pairs.
    """
    ids = base.entities.select(subject_id="entity_id").with_row_index("row")
    triples = base.triples.lazy().join(ids.lazy(), on="subject_id")
    objects = _numbered(pl.concat([ids["subject_id"], base.triples["object_id"]]), "object_id", "o")
    relations = _numbered(base.triples["relation_id"], "relation_id", "r")
    found = triples.join(objects.lazy(), on="object_id").join(relations.lazy(), on="relation_id")
    table = found.select("row", "o", "r").collect()
    row, o, r = (table[name].to_numpy().astype(np.int64) for name in ("row", "o", "r"))
    pairs = np.unique(r * objects.height + o, return_inverse=True)[1].astype(np.int64)
    itself = np.arange(ids.height)  # entities are numbered first, in their order
    first = objects.height
    columns = [itself, o, first + r, first + relations.height + pairs]
    return np.concatenate([itself, row, row, row]), np.concatenate(columns)


def _numbered(ids: pl.Series, name: str, number: str) -> pl.DataFrame:
    """The distinct ids with their numbers, in the order of their first places."""
    return ids.unique(maintain_order=True).alias(name).to_frame().with_row_index(number)
