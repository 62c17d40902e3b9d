"""Which distractors a fact is asked with, and in which order.

Source: "Factual Knowledge Assessment of Language Models Using Distractors", section 3.3.

    random      drawn from Ω(f) by the seed
    semantic    those of Ω(f) whose vectors are nearest to the answer's, by cosine
    temporal    those of Ω(f) that were right before, the latest first; then semantic ones

Entities of equal cosine (to 9 digits) come in an order that the seed gives. A fact with fewer than
n distractors has all of them.

Ω(f) are the entities that are plausible wrong answers: an entity is a distractor of (s, r, o) if it
shares a type with o, is no right object of (s, r), and shares no label with o. Labels are compared
in the case folding and normal form C of Unicode. What is right: the objects that the triples give
(s, r) and whose validity has not ended, and those of the facts that are asked. A triple with an
`end` has ended, whatever its date.
"""

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from factsweep.operators import seeds
from factsweep.operators.datasets.knowledge_base import KnowledgeBase
from factsweep.operators.schemas import schema

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Rows = NDArray[np.int64]  # entities, by their row in the knowledge base
NONE: Rows = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Question:
    """A fact and its Ω: the entities of its kind, without `answer`, `right` and `sharing`.

    `right` are further right objects of (s, r) among them, `sharing` other entities that share a
    label with the answer. `earlier` are objects of Ω that were right before, the latest first.
    """

    pair_id: str
    answer: int
    right: Rows
    sharing: Rows
    earlier: Rows

    @property
    def left_out(self) -> Rows:
        """The entities of the kind that are no distractors, the answer aside."""
        return np.concatenate([self.right, self.sharing])

    def distractors(self, candidates: Rows) -> Rows:
        """Those of the candidates (of the same kind) that are distractors, in their order."""
        taken = np.append(self.left_out, self.answer)
        return candidates[~np.isin(candidates, taken)]


@dataclass(frozen=True)
class Kind:
    """The facts whose objects have the same types, and all entities that share one (`members`)."""

    types: tuple[str, ...]
    members: Rows
    questions: tuple[Question, ...]


def folded(label: str) -> str:
    """The label as it is compared with others.

    >>> folded("STRASSE") == folded("Straße")
    True
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", label).casefold())


def kinds(base: KnowledgeBase, facts: pl.DataFrame) -> Iterator[Kind]:
    """The facts by the types of their objects, those without a known type apart.

    `facts` has pair_id, subject_id, relation_id and answer_id, one row per fact. Facts whose answer
    the knowledge base does not know, or knows no type of, are in no kind.
    """
    ids = base.entities.select("entity_id").with_row_index("row")
    known = facts.join(ids, left_on="answer_id", right_on="entity_id", maintain_order="left")
    known = known.with_columns(pl.col("row").cast(pl.Int64))
    by_label = _Postings(base.entities["labels"], folded)
    asked = known.select("subject_id", "relation_id", object_id="answer_id")
    of_facts = base.triples.join(asked, on=["subject_id", "relation_id"], how="semi")
    now = of_facts.filter(pl.col("end").is_null()).select(asked.columns)
    right_of = _objects(pl.concat([now, asked]), ids)
    # The latest end first; of one end by the start, then by the object's id.
    order = [*_date("end"), *_date("start"), pl.col("object_id")]
    past = of_facts.filter(pl.col("end").is_not_null())
    past = past.sort(order, descending=[True] * (len(order) - 1) + [False], nulls_last=True)
    past_of = _objects(past, ids)

    def question(fact: dict[str, object], members: Rows) -> Question:
        answer, subject = int(str(fact["row"])), (fact["subject_id"], fact["relation_id"])
        right = _without(_among(right_of[subject], members), answer)
        sharing = _without(_among(by_label.of(answer), members), answer, *right)
        earlier = _among(past_of.get(subject, NONE), members)
        earlier = _without(earlier, answer, *right, *sharing)
        return Question(str(fact["pair_id"]), answer, right, sharing, earlier)

    by_type = _Postings(base.entities["types"])
    own = base.entities["types"].gather(known["row"]).list.sort()
    typed = known.with_columns(own.alias("types"))
    for (types,), rows in typed.group_by("types", maintain_order=True):
        if types:
            members = by_type.of(int(rows["row"][0]))
            questions = (question(row, members) for row in rows.iter_rows(named=True))
            yield Kind(tuple(types), members, tuple(questions))


def counted(base: KnowledgeBase, facts: pl.DataFrame) -> pl.DataFrame:
    """How large Ω is for each fact, and how many entities of its kind are left out, by reason.

    Columns: pair_id, n_same_type, n_right (of these other right objects), n_sharing (of the others
    those that share a label), n_distractors. A fact whose answer is unknown or has no type: all 0.
    """
    sizes = [
        (each.pair_id, kind.members.size - 1, each.right.size, each.sharing.size)
        for kind in kinds(base, facts)
        for each in kind.questions
    ]
    columns = schema("pair_id text, n_same_type int, n_right int, n_sharing int")
    found = pl.DataFrame(sizes, columns, orient="row")
    rows = facts.select("pair_id").join(found, on="pair_id", how="left", maintain_order="left")
    rows = rows.with_columns(pl.exclude("pair_id").fill_null(0))
    left = pl.col("n_same_type") - pl.col("n_right") - pl.col("n_sharing")
    return rows.with_columns(n_distractors=left)


class _Postings:
    """Which entities share a value with one: lists of values by entity, and entities by value."""

    def __init__(self, values: pl.Series, key: Callable[[str], str] | None = None) -> None:
        """By lists of values, one per entity; `key` says which values are the same."""
        from scipy.sparse import csr_matrix

        pairs = pl.DataFrame({"row": np.arange(len(values)), "value": values})
        pairs = pairs.explode("value").drop_nulls()
        each = pairs["value"].unique()
        keys = each if key is None else pl.Series(map(key, each), dtype=pl.String)
        numbers = pl.DataFrame({"value": each, "code": keys.rank("dense").cast(pl.Int64) - 1})
        pairs = pairs.join(numbers, on="value")
        codes = pairs["code"].to_numpy()
        rows = pairs["row"].to_numpy()
        shape = (len(values), int(codes.max(initial=-1)) + 1)
        marks = np.ones(len(rows), dtype=np.int8)
        self._values = csr_matrix((marks, (rows, codes)), shape=shape)
        self._entities = csr_matrix((marks, (codes, rows)), shape=shape[::-1])

    def of(self, row: int) -> Rows:
        """The entities that have a value of this one, itself among them, in order."""
        found = [_row(self._entities, value) for value in _row(self._values, row)]
        return np.unique(np.concatenate(found)).astype(np.int64) if found else NONE


def _row(matrix: "csr_matrix", row: int) -> NDArray[np.int32]:
    found: NDArray[np.int32] = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
    return found


def _among(rows: Rows, members: Rows) -> Rows:
    """Those of a few rows that are among many, which are sorted."""
    places = np.minimum(np.searchsorted(members, rows), members.size - 1)
    found: Rows = rows[members[places] == rows]
    return found


def _without(rows: Rows, *others: int) -> Rows:
    return rows[~np.isin(rows, others)]


def _objects(rows: pl.DataFrame, ids: pl.DataFrame) -> dict[tuple[object, object], Rows]:
    """The known objects of each subject and relation, each once, in the order of the rows."""
    found = rows.join(ids, left_on="object_id", right_on="entity_id", maintain_order="left")
    grouped = found.group_by("subject_id", "relation_id", maintain_order=True).agg(
        pl.col("row").unique(maintain_order=True).cast(pl.Int64)
    )
    return {(s, r): np.array(found, dtype=np.int64) for s, r, found in grouped.iter_rows()}


def _date(column: str) -> list[pl.Expr]:
    """Year, month and day of an ISO text; what is not given is null.

    >>> pl.DataFrame({"end": ["-0044-03-15", "2011", "+2011-05"]}).select(_date("end")).rows()
    [(-44, 3, 15), (2011, None, None), (2011, 5, None)]
    """
    found = pl.col(column).str.extract_groups(r"^\+?(-?\d+)(?:-(\d\d))?(?:-(\d\d))?")
    return [found.struct.field(part).cast(pl.Int64).alias(f"{column}_{part}") for part in "123"]


def resolved(asked: pl.DataFrame, base: KnowledgeBase) -> pl.DataFrame:
    """The facts with ids of the knowledge base (subject_id, relation_id, answer_id, labels).

    An id that the knowledge base lacks is looked up among its labels, and so are the labels of an
    object: case folded, in normal form C. Of several entities it is one that the relation has in
    that place, then the most popular, then the one whose id comes first. What is not found stays.
    """
    known = base.entities.select("entity_id")
    places = {"subject_id": "subject_id", "answer_id": "object_id"}
    for column, place in places.items():
        lacking = asked.join(known, left_on=column, right_on="entity_id", how="anti")
        if lacking.is_empty():
            continue
        found = _found(base, lacking, column, place)
        key = [column, "relation_id"]
        asked = asked.join(found, on=key, how="left", maintain_order="left")
        asked = asked.with_columns(pl.coalesce("found", column).alias(column)).drop("found")
    return asked


def _found(base: KnowledgeBase, lacking: pl.DataFrame, column: str, place: str) -> pl.DataFrame:
    """The entity of each (column, relation_id) that is found: `found`."""
    names = lacking.select(column, "relation_id", name=column)
    if column == "answer_id":
        others = lacking.select(column, "relation_id", name="labels").explode("name")
        names = pl.concat([names, others])
    names = names.unique()
    names = names.with_columns(key=_keys(names["name"]))
    labels = base.entities.select("entity_id", "popularity", name="labels").explode("name")
    labels = labels.with_columns(key=_keys(labels["name"]))
    there = base.triples.select("relation_id", entity_id=place, fits=pl.lit(value=True)).unique()
    both = names.join(labels.drop("name"), on="key")
    both = both.join(there, on=["relation_id", "entity_id"], how="left")
    order = [pl.col("fits").is_null(), -pl.col("popularity").fill_null(0.0), pl.col("entity_id")]
    first = both.sort(order).unique([column, "relation_id"], keep="first", maintain_order=True)
    return first.select(column, "relation_id", found="entity_id")


def _keys(names: pl.Series) -> pl.Series:
    each = names.unique()
    keys = pl.Series(map(folded, each), dtype=pl.String)
    return names.replace_strict(each, keys, return_dtype=pl.String)


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
    found = []
    for kind in kinds(base, facts):
        for question, rows in order(kind, n):
            first = question.earlier if retrieval == "temporal" else NONE
            ordered = np.concatenate([first, rows[~np.isin(rows, first)]])
            found.append((question.pair_id, ordered[:n].tolist()))
    lists = pl.DataFrame(found, schema("pair_id text, row int[]"), orient="row")
    each = lists.explode("row").drop_nulls("row")
    rank = (pl.int_range(pl.len()).over("pair_id") + 1).cast(pl.UInt32)
    entity_id = base.entities["entity_id"].gather(each["row"])
    return each.select("pair_id", entity_id.alias("entity_id"), rank=rank)


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
                others = in_turn[:k]  # enough: at most near.size of them are near
                others = others[~np.isin(others, near)][: k - near.size]
                yield answer, members[np.concatenate([near, others])]


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
