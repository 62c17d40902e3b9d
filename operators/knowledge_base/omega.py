"""Ω(f): the entities that are plausible wrong answers to a fact (section 3.3).

An entity is a distractor of (s, r, o) if it shares a type with o, is no right object of (s, r), and
shares no label with o. Labels are compared in the case folding and normal form C of Unicode.

What is right: the objects that the triples give (s, r) and whose validity has not ended, and those
of the facts that are asked. A triple with an `end` has ended, whatever its date.
"""

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from factsweep.operators.knowledge_base.knowledge_base import KnowledgeBase
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
    questions = _Questions(base, ids, known)
    by_type = _Postings(base.entities["types"])
    own = base.entities["types"].gather(known["row"]).list.sort()
    typed = known.with_columns(own.alias("types"))
    for (types,), rows in typed.group_by("types", maintain_order=True):
        if types:
            members = by_type.of(int(rows["row"][0]))
            asked = (questions.of(row, members) for row in rows.iter_rows(named=True))
            yield Kind(tuple(types), members, tuple(asked))


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


class _Questions:
    """What is left out of each fact's kind, and what was right before."""

    def __init__(self, base: KnowledgeBase, ids: pl.DataFrame, facts: pl.DataFrame) -> None:
        self._by_label = _Postings(base.entities["labels"], folded)
        asked = facts.select("subject_id", "relation_id", object_id="answer_id")
        of_facts = base.triples.join(asked, on=["subject_id", "relation_id"], how="semi")
        past = of_facts.filter(pl.col("end").is_not_null())
        now = of_facts.filter(pl.col("end").is_null()).select(asked.columns)
        self._right = _objects(pl.concat([now, asked]), ids)
        self._past = _objects(_latest_first(past), ids)

    def of(self, fact: dict[str, object], members: Rows) -> Question:
        answer, subject = int(str(fact["row"])), (fact["subject_id"], fact["relation_id"])
        right = _without(_among(self._right[subject], members), answer)
        sharing = _without(_among(self._by_label.of(answer), members), answer, *right)
        past = _among(self._past.get(subject, NONE), members)
        earlier = _without(past, answer, *right, *sharing)
        return Question(str(fact["pair_id"]), answer, right, sharing, earlier)


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


def _latest_first(past: pl.DataFrame) -> pl.DataFrame:
    """Triples by their end, the latest first; of one end by the start, then by the object's id."""
    parts = [*_date("end"), *_date("start")]
    order = [*parts, pl.col("object_id")]
    return past.sort(order, descending=[True] * len(parts) + [False], nulls_last=True)


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

    >>> entities = pl.DataFrame({"entity_id": ["Q2", "Q90"], "labels": [["Paris"], ["Paris"]],
    ...     "popularity": [5.0, 1.0]})
    >>> triples = pl.DataFrame(
    ...     {"subject_id": ["Q142"], "relation_id": ["P36"], "object_id": ["Q90"]})
    >>> asked = pl.DataFrame({"subject_id": ["France"], "relation_id": ["P36"],
    ...     "answer_id": ["paris"], "labels": [["paris"]]})
    >>> resolved(asked, KnowledgeBase(entities, triples)).row(0)
    ('France', 'P36', 'Q90', ['paris'])
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
