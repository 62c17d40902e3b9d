"""The distractors of a fact, and their order.

Source: "Factual Knowledge Assessment of Language Models Using Distractors", section 3.3.

    random      drawn from Ω(f) by the seed
    semantic    those of Ω(f) whose vectors are nearest to the answer's, by cosine
    temporal    those of Ω(f) that were right before, the latest first; then semantic ones

Ω(f), the plausible wrong answers of f = (s, r, o): the entities that share a type with o, are no
right object of (s, r), and share no label with o (case folded, in Unicode's normal form C). Right
are the objects of the facts, and of the triples of (s, r) without an `end`. A fact with fewer than
n distractors has all of them; the seed orders entities of equal cosine (to 9 digits).
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

    `right` are further right objects, `sharing` other entities with a label of the answer,
    `earlier` objects of Ω that were right before, the latest first.
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
        excluded = np.append(self.left_out, self.answer)
        return candidates[~np.isin(candidates, excluded)]


@dataclass(frozen=True)
class EntityKind:
    """The facts whose objects have the same types, and `members`: entities with one."""

    types: tuple[str, ...]
    members: Rows
    questions: tuple[Question, ...]


def fold_label(label: str) -> str:
    """The label in the form that is compared.

    >>> fold_label("STRASSE") == fold_label("Straße")
    True
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", label).casefold())


def kinds(base: KnowledgeBase, facts: pl.DataFrame) -> Iterator[EntityKind]:
    """The facts by the types of their objects.

    `facts` has pair_id, subject_id, relation_id and answer_id, one row per fact. Facts whose answer
    the knowledge base does not know, or knows no type of, are in no kind.
    """
    ids = base.entities.select("entity_id").with_row_index("row")
    rows = facts.join(ids, left_on="answer_id", right_on="entity_id", maintain_order="left")
    rows = rows.with_columns(pl.col("row").cast(pl.Int64))
    by_label = _Postings(base.entities["labels"], fold_label)
    by_type = _Postings(base.entities["types"])
    answers = rows.select("subject_id", "relation_id", object_id="answer_id")
    triples = base.triples.join(answers, on=["subject_id", "relation_id"], how="semi")
    current = triples.filter(pl.col("end").is_null()).select(answers.columns)
    right_of = _objects(pl.concat([current, answers]), ids)
    # The latest end first; of one end by the start, then by the object's id.
    order = [*_date("end"), *_date("start"), pl.col("object_id")]
    past = triples.filter(pl.col("end").is_not_null())
    past = past.sort(order, descending=[True] * (len(order) - 1) + [False], nulls_last=True)
    past_of = _objects(past, ids)

    def question(fact: dict[str, object], members: Rows) -> Question:
        answer, subject = int(str(fact["row"])), (fact["subject_id"], fact["relation_id"])
        right = _without(_select_members(right_of[subject], members), answer)
        sharing = _without(_select_members(by_label.of(answer), members), answer, *right)
        earlier = _select_members(past_of.get(subject, NONE), members)
        earlier = _without(earlier, answer, *right, *sharing)
        return Question(str(fact["pair_id"]), answer, right, sharing, earlier)

    types = base.entities["types"].gather(rows["row"]).list.sort()
    typed = rows.with_columns(types.alias("types"))
    for (types_of_kind,), of_kind in typed.group_by("types", maintain_order=True):
        if types_of_kind:
            members = by_type.of(int(of_kind["row"][0]))
            questions = (question(row, members) for row in of_kind.iter_rows(named=True))
            yield EntityKind(tuple(types_of_kind), members, tuple(questions))


def count_distractors(base: KnowledgeBase, facts: pl.DataFrame) -> pl.DataFrame:
    """The size of Ω for each fact, and the entities of its kind that are left out, by reason.

    Columns: pair_id, n_same_type, n_right (of these other right objects), n_sharing (of the others
    those with a label of the answer), n_distractors; all 0 if the answer is unknown or has no type.
    """
    sizes = [
        (question.pair_id, kind.members.size - 1, question.right.size, question.sharing.size)
        for kind in kinds(base, facts)
        for question in kind.questions
    ]
    columns = schema("pair_id text, n_same_type int, n_right int, n_sharing int")
    counts = pl.DataFrame(sizes, columns, orient="row")
    rows = facts.select("pair_id").join(counts, on="pair_id", how="left", maintain_order="left")
    rows = rows.with_columns(pl.exclude("pair_id").fill_null(0))
    n_distractors = pl.col("n_same_type") - pl.col("n_right") - pl.col("n_sharing")
    return rows.with_columns(n_distractors=n_distractors)


class _Postings:
    """The entities that share a value with one: lists of values by entity, entities by value."""

    def __init__(self, values: pl.Series, key: Callable[[str], str] | None = None) -> None:
        """By lists of values, one per entity; values with the same `key` are the same."""
        from scipy.sparse import csr_matrix

        pairs = pl.DataFrame({"row": np.arange(len(values)), "value": values})
        pairs = pairs.explode("value").drop_nulls()
        distinct = pairs["value"].unique()
        keys = distinct if key is None else pl.Series(map(key, distinct), dtype=pl.String)
        numbers = pl.DataFrame({"value": distinct, "code": keys.rank("dense").cast(pl.Int64) - 1})
        pairs = pairs.join(numbers, on="value")
        codes = pairs["code"].to_numpy()
        rows = pairs["row"].to_numpy()
        shape = (len(values), int(codes.max(initial=-1)) + 1)
        marks = np.ones(len(rows), dtype=np.int8)
        self._values = csr_matrix((marks, (rows, codes)), shape=shape)
        self._entities = csr_matrix((marks, (codes, rows)), shape=shape[::-1])

    def of(self, row: int) -> Rows:
        """The entities that have a value of this one, itself among them, in order."""
        entities = [_row(self._entities, value) for value in _row(self._values, row)]
        return np.unique(np.concatenate(entities)).astype(np.int64) if entities else NONE


def _row(matrix: "csr_matrix", row: int) -> NDArray[np.int32]:
    return np.asarray(matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]])


def _select_members(rows: Rows, members: Rows) -> Rows:
    """Those of a few rows that are among many, which are sorted."""
    places = np.minimum(np.searchsorted(members, rows), members.size - 1)
    return np.asarray(rows[members[places] == rows])


def _without(rows: Rows, *excluded: int) -> Rows:
    return rows[~np.isin(rows, excluded)]


def _objects(rows: pl.DataFrame, ids: pl.DataFrame) -> dict[tuple[object, object], Rows]:
    """The known objects of each subject and relation, each once, in the order of the rows."""
    objects = rows.join(ids, left_on="object_id", right_on="entity_id", maintain_order="left")
    grouped = objects.group_by("subject_id", "relation_id", maintain_order=True).agg(
        pl.col("row").unique(maintain_order=True).cast(pl.Int64)
    )
    return {(s, r): np.array(of_fact, dtype=np.int64) for s, r, of_fact in grouped.iter_rows()}


def _date(column: str) -> list[pl.Expr]:
    """Year, month and day of an ISO text; a missing part is null.

    >>> pl.DataFrame({"end": ["-0044-03-15", "2011", "+2011-05"]}).select(_date("end")).rows()
    [(-44, 3, 15), (2011, None, None), (2011, 5, None)]
    """
    groups = pl.col(column).str.extract_groups(r"^\+?(-?\d+)(?:-(\d\d))?(?:-(\d\d))?")
    return [groups.struct.field(part).cast(pl.Int64).alias(f"{column}_{part}") for part in "123"]


def resolve_ids(facts: pl.DataFrame, base: KnowledgeBase) -> pl.DataFrame:
    """The facts with ids of the knowledge base (subject_id, relation_id, answer_id, labels).

    An id that the knowledge base lacks is looked up among its labels, and so are the labels of an
    object: case folded, in normal form C. Of several entities it is one that the relation has in
    that place, then the most popular, then the one whose id comes first. Unknown ids stay.
    """
    ids = base.entities.select("entity_id")
    for column, place in (("subject_id", "subject_id"), ("answer_id", "object_id")):
        unknown = facts.join(ids, left_on=column, right_on="entity_id", how="anti")
        if unknown.is_empty():
            continue
        names = unknown.select(column, "relation_id", name=column)
        if column == "answer_id":
            labels = unknown.select(column, "relation_id", name="labels").explode("name")
            names = pl.concat([names, labels])
        names = names.unique()
        names = names.with_columns(key=_keys(names["name"]))
        entities = base.entities.select("entity_id", "popularity", name="labels").explode("name")
        entities = entities.with_columns(key=_keys(entities["name"])).drop("name")
        fitting = base.triples.select("relation_id", entity_id=place, fits=pl.lit(value=True))
        matches = names.join(entities, on="key")
        matches = matches.join(fitting.unique(), on=["relation_id", "entity_id"], how="left")
        popularity = pl.col("popularity").fill_null(0.0)
        matches = matches.sort(pl.col("fits").is_null(), -popularity, "entity_id")
        first = matches.unique([column, "relation_id"], keep="first", maintain_order=True)
        first = first.select(column, "relation_id", match="entity_id")
        facts = facts.join(first, on=[column, "relation_id"], how="left", maintain_order="left")
        facts = facts.with_columns(pl.coalesce("match", column).alias(column)).drop("match")
    return facts


def _keys(names: pl.Series) -> pl.Series:
    distinct = names.unique()
    keys = pl.Series(map(fold_label, distinct), dtype=pl.String)
    return names.replace_strict(distinct, keys, return_dtype=pl.String)


def vectors(base: KnowledgeBase) -> "csr_matrix":
    """One row per entity in the order of `base.entities`, one column per feature; sparse.

    TF-IDF (section 3.3) over the bag of an entity e: e itself; each r, o and (r, o) of the triples
    (e, r, o), each once. An entity is the same feature as itself and as another's object.
    Weights are scikit-learn's defaults: idf = ln((1 + n) / (1 + df)) + 1, vectors of length 1.
    """
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfTransformer

    def number_ids(ids: pl.Series, name: str, number: str) -> pl.LazyFrame:
        """The distinct ids with their numbers, in the order of their first places."""
        return ids.unique(maintain_order=True).alias(name).to_frame().with_row_index(number).lazy()

    ids = base.entities.select(subject_id="entity_id").with_row_index("row")
    objects = number_ids(
        pl.concat([ids["subject_id"], base.triples["object_id"]]), "object_id", "o"
    )
    relations = number_ids(base.triples["relation_id"], "relation_id", "r")
    triples = base.triples.lazy().join(ids.lazy(), on="subject_id")
    triples = triples.join(objects, on="object_id").join(relations, on="relation_id")
    table = triples.select("row", "o", "r").collect()
    row, o, r = (table[name].to_numpy().astype(np.int64) for name in ("row", "o", "r"))
    n_objects, n_relations = (frame.collect().height for frame in (objects, relations))
    pairs = np.unique(r * n_objects + o, return_inverse=True)[1].astype(np.int64)
    itself = np.arange(ids.height)  # entities are the first objects, in their order
    rows = np.concatenate([itself, row, row, row])
    columns = np.concatenate([itself, o, n_objects + r, n_objects + n_relations + pairs])
    shape = (ids.height, int(columns.max(initial=-1)) + 1)
    marks = csr_matrix((np.ones(rows.size), (rows, columns)), shape=shape)
    marks.data[:] = 1.0  # repeated features were added up
    weighted: csr_matrix = TfidfTransformer().fit_transform(marks)
    return weighted


Retrieved = Literal["random", "semantic", "temporal"]
_DIGITS = 9
_CELLS_PER_BLOCK = 8_000_000  # similarities that are held at once: 100 MB


def retrieve_distractors(
    base: KnowledgeBase, facts: pl.DataFrame, retrieval: Retrieved, n: int, *, seed: int
) -> pl.DataFrame:
    """The distractors of each fact: pair_id, entity_id, rank (from 1).

    `facts` has pair_id, subject_id, relation_id and answer_id, one row per fact.
    """
    order = partial(_draw, seed) if retrieval == "random" else _Semantic(base, seed).of
    rows = []
    for kind in kinds(base, facts):
        for question, distractors in order(kind, n):
            first = question.earlier if retrieval == "temporal" else NONE
            ordered = np.concatenate([first, distractors[~np.isin(distractors, first)]])
            rows.append((question.pair_id, ordered[:n].tolist()))
    lists = pl.DataFrame(rows, schema("pair_id text, row int[]"), orient="row")
    flat = lists.explode("row").drop_nulls("row")
    rank = (pl.int_range(pl.len()).over("pair_id") + 1).cast(pl.UInt32)
    entity_id = base.entities["entity_id"].gather(flat["row"])
    return flat.select("pair_id", entity_id.alias("entity_id"), rank=rank)


def _draw(seed: int, kind: EntityKind, n: int) -> Iterator[tuple[Question, Rows]]:
    """Each fact with n distractors or all, without replacement: those in Ω of a larger draw.

    The size of a fact's draw depends on the fact alone, so other facts change no draw.
    """
    by_count: dict[int, list[Question]] = {}
    among = kind.members.size
    for question in kind.questions:
        count = min(n + 1 + question.left_out.size, among)
        by_count.setdefault(count, []).append(question)
    for count, questions in by_count.items():
        keys = seeds.keys(seed, "distractors", (question.pair_id for question in questions))
        indices = seeds.distinct_indices(keys, count=count, among=among)
        for question, places in zip(questions, indices, strict=True):
            yield question, question.distractors(kind.members[places])[:n]


class _Semantic:
    """The nearest entities of the kind, exactly, by products of sparse matrices in blocks."""

    def __init__(self, base: KnowledgeBase, seed: int) -> None:
        self._vectors = vectors(base)
        ids = base.entities["entity_id"]
        self._turn = pl.Series(seeds.keys(seed, "ties", ids)).rank("ordinal").to_numpy()

    def of(self, kind: EntityKind, n: int) -> Iterator[tuple[Question, Rows]]:
        """Each fact with its nearest n distractors or all; facts of one answer share the search."""
        by_answer: dict[int, list[Question]] = {}
        for question in kind.questions:
            by_answer.setdefault(question.answer, []).append(question)
        most = 1 + max(question.left_out.size for question in kind.questions)
        for answer, nearest in self._nearest_entities(kind.members, list(by_answer), n + most):
            for question in by_answer[answer]:
                yield question, question.distractors(nearest)[:n]

    def _nearest_entities(
        self, members: Rows, answers: list[int], k: int
    ) -> Iterator[tuple[int, Rows]]:
        columns = self._vectors[members].T.tocsr()
        ties = self._turn[members]
        in_order = np.argsort(ties)
        block_size = max(1, _CELLS_PER_BLOCK // members.size)
        for start in range(0, len(answers), block_size):
            block = answers[start : start + block_size]
            cosines = (self._vectors[block] @ columns).tocsr()
            for place, answer in enumerate(block):
                span = slice(*cosines.indptr[place : place + 2])
                nearest = _select_top(cosines.indices[span], cosines.data[span], ties, k)
                fillers = in_order[:k]  # enough: at most nearest.size of them are nearest
                fillers = fillers[~np.isin(fillers, nearest)][: k - nearest.size]
                yield answer, members[np.concatenate([nearest, fillers])]


def _select_top(
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
    return np.asarray(places[np.lexsort((turn[places], -rounded))])
