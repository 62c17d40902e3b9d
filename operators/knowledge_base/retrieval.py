"""Which distractors a fact is asked with, and in which order (section 3.3).

    random      drawn from Ω(f) by the seed
    semantic    those of Ω(f) whose vectors are nearest to the answer's, by cosine
    temporal    those of Ω(f) that were right before, the latest first; then semantic ones

Entities of equal cosine (to 9 digits) come in an order that the seed gives. A fact with fewer than
n distractors has all of them.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from factsweep.operators import seeds
from factsweep.operators.knowledge_base.knowledge_base import KnowledgeBase
from factsweep.operators.knowledge_base.omega import Kind, Question, Rows, kinds
from factsweep.operators.schemas import schema

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_Numbers = NDArray[np.int64]


def vectors(base: KnowledgeBase) -> "csr_matrix":
    """One row per entity in the order of `base.entities`, one column per feature; sparse.

    TF-IDF (section 3.3) over the bag of an entity e: e itself; each r, o and (r, o) of the triples
    (e, r, o), each once. An entity is the same feature as itself and as another's object.
    Weights are scikit-learn's defaults: idf = ln((1 + n) / (1 + df)) + 1, vectors of length 1.
    """
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


Retrieved = Literal["random", "semantic", "temporal"]
_DIGITS = 9
_CELLS_PER_BLOCK = 8_000_000  # similarities that are held at once: 100 MB


def retrieved(
    base: KnowledgeBase, facts: pl.DataFrame, retrieval: Retrieved, n: int, *, seed: int
) -> pl.DataFrame:
    """The distractors of each fact: pair_id, entity_id, rank (from 1).

    `facts` has pair_id, subject_id, relation_id and answer_id, one row per fact.
    """
    order = partial(_drawn, seed) if retrieval == "random" else _Semantic(base, seed).of
    found = [
        (question.pair_id, _first(question, rows, n, earlier=retrieval == "temporal").tolist())
        for kind in kinds(base, facts)
        for question, rows in order(kind, n)
    ]
    lists = pl.DataFrame(found, schema("pair_id text, row int[]"), orient="row")
    each = lists.explode("row").drop_nulls("row")
    rank = (pl.int_range(pl.len()).over("pair_id") + 1).cast(pl.UInt32)
    entity_id = base.entities["entity_id"].gather(each["row"])
    return each.select("pair_id", entity_id.alias("entity_id"), rank=rank)


def _first(question: Question, rows: Rows, n: int, *, earlier: bool) -> Rows:
    if earlier:
        rows = np.concatenate([question.earlier, rows[~np.isin(rows, question.earlier)]])
    return rows[:n]


def _drawn(seed: int, kind: Kind, n: int) -> Iterator[tuple[Question, Rows]]:
    """Each fact with n distractors or all: of a draw of a few more, those that are in Ω.

    Each fact has a draw of its own, without replacement. How many are drawn depends on the fact
    alone, so that other facts change no draw.
    """
    by_count: dict[int, list[Question]] = {}
    among = kind.members.size
    for question in kind.questions:
        count = min(n + 1 + question.left_out.size, among)
        by_count.setdefault(count, []).append(question)
    for count, questions in by_count.items():
        keys = seeds.keys(seed, "distractors", (each.pair_id for each in questions))
        drawn = seeds.distinct_indices(keys, count=count, among=among)
        for question, places in zip(questions, drawn, strict=True):
            yield question, question.distractors(kind.members[places])[:n]


class _Semantic:
    """The nearest entities of the kind, exactly, by products of sparse matrices in blocks."""

    def __init__(self, base: KnowledgeBase, seed: int) -> None:
        self._vectors = vectors(base)
        ids = base.entities["entity_id"]
        self._turn = pl.Series(seeds.keys(seed, "ties", ids)).rank("ordinal").to_numpy()

    def of(self, kind: Kind, n: int) -> Iterator[tuple[Question, Rows]]:
        """Each fact with its nearest n distractors or all; facts of one answer share the search."""
        by_answer: dict[int, list[Question]] = {}
        for question in kind.questions:
            by_answer.setdefault(question.answer, []).append(question)
        most = 1 + max(question.left_out.size for question in kind.questions)
        for answer, nearest in self._nearest(kind.members, list(by_answer), n + most):
            for question in by_answer[answer]:
                yield question, question.distractors(nearest)[:n]

    def _nearest(self, members: Rows, answers: list[int], k: int) -> Iterator[tuple[int, Rows]]:
        columns = self._vectors[members].T.tocsr()
        turn = self._turn[members]
        in_turn = np.argsort(turn)
        size = max(1, _CELLS_PER_BLOCK // members.size)
        for start in range(0, len(answers), size):
            some = answers[start : start + size]
            similar = (self._vectors[some] @ columns).tocsr()
            for place, answer in enumerate(some):
                span = slice(*similar.indptr[place : place + 2])
                near = _top(similar.indices[span], similar.data[span], turn, k)
                yield answer, members[_filled(near, in_turn, k)]


def _top(
    places: NDArray[np.int32], cosine: NDArray[np.float64], turn: NDArray[np.uint32], k: int
) -> NDArray[np.int32]:
    """The k places of the highest cosine, ties in turn."""
    rounded = np.round(cosine, _DIGITS)
    places, rounded = places[rounded > 0], rounded[rounded > 0]
    if places.size > k:
        last = np.partition(rounded, -k)[-k]
        above, tied = places[rounded > last], places[rounded == last]
        missing = k - above.size
        if tied.size > missing:
            tied = tied[np.argpartition(turn[tied], missing - 1)[:missing]]
        chosen = np.concatenate([above, tied])
        values = np.concatenate([rounded[rounded > last], np.full(tied.size, last)])
        places, rounded = chosen, values
    found: NDArray[np.int32] = places[np.lexsort((turn[places], -rounded))]
    return found


def _filled(near: NDArray[np.int32], in_turn: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """The near ones, then others in turn, k in all or as many as there are."""
    missing = k - near.size
    if missing <= 0:
        return near.astype(np.int64)
    some = in_turn[:k]  # enough: at most near.size of them are near
    return np.concatenate([near, some[~np.isin(some, near)][:missing]])
