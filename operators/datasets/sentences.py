"""Facts that people put into sentences of their own, in place of templates of a relation.

    probing-gpt2-xl.parquet   what people asked GPT2-XL, and how well they found each fact known
    verbalisations.parquet    sentences made of templates, and their corrections

Such a sentence is a cloze: it stands in `subjects` of its fact, and the one template of every
relation is `[X] [Y]`. `subject_index` tells the sentences of a fact apart: of a verbalisation 0 is
the flawed and 1 the corrected one. Entities without an id go by their label.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from factsweep.operators.datasets.columns import Column, check_columns
from factsweep.operators.datasets.entities import from_names
from factsweep.operators.datasets.facts import Facts, checked, named
from factsweep.operators.errors import InputError
from factsweep.operators.knowledge_base.knowledge_base import KnowledgeBase
from factsweep.operators.schemas import empty
from factsweep.operators.wording import listed

TEMPLATE = "[X] [Y]"
VERBALISED = "flawed and corrected"  # the sample of facts that stand in two such sentences
PROBING = (
    *("fact_id", "relation", "element", "sentence"),
    *("gold", "gold_corrected", "disambiguation", "human_score"),
)
VERBALISATIONS = ("triples_raw", "triples", "verbalization", "correction")
Tables = Mapping[str, pl.DataFrame]
Relations = Mapping[str, str] | None


class _Fact(NamedTuple):
    """A fact and its sentences; the ends of a triple are (id, label)."""

    name: str
    subject: tuple[str, str]
    relation_id: str
    object: tuple[str, str]
    sentences: Sequence[str]
    human_score: float | None = None
    popularity: float | None = None
    sample: str | None = None


def probed(tables: Tables, relations: Relations = None) -> Facts:
    """The facts that people asked for, with the sentences that leave their object open.

    The subject is the right answer of the sentences that leave that open. A sentence that stands
    twice counts once.

    Raises:
        InputError: there is not one table, or it lacks a column.
    """
    rows = _only(tables, PROBING, floats=("human_score",))
    facts = []
    for fact_id, mine in rows.group_by("fact_id", maintain_order=True):
        asked, known = mine.filter(element="object"), mine.filter(element="subject")
        if asked.is_empty() or known.is_empty():
            raise InputError(
                f"fact {fact_id[0]} has no sentence that leaves its object or subject open; "
                "add one or drop the fact."
            )
        first = asked.row(0, named=True)
        sentences = asked["sentence"].str.strip_chars().unique(maintain_order=True).to_list()
        ends = (_entity(each.row(0, named=True)) for each in (known, asked))
        subject, object_ = ends
        score = first["human_score"]
        facts.append(_Fact(str(fact_id[0]), subject, first["relation"], object_, sentences, score))
    return _as_facts(facts, relations)


def verbalised(tables: Tables, relations: Relations = None) -> Facts:
    """The facts with a flawed and a corrected sentence, both of which end in the object.

    A sentence may have a full stop behind the object; the others are left out
    (`n_verbalised`).

    Raises:
        InputError: there is not one table, or it lacks a column.
    """
    return _as_facts(list(_verbalised(tables)), relations)


def counts(facts: Facts) -> dict[str, int]:
    """The size of such a set."""
    names = facts.pairs["subjects"].list.len()
    return {
        "relations": facts.relations.height,
        "pairs": facts.pairs.height,
        "sentences": int(names.sum()),
    }


def n_verbalised(tables: Tables) -> dict[str, int]:
    """How many sentences are corrected, and how many of them are left out."""
    rows = _only(tables, VERBALISATIONS).drop_nulls("correction")
    return {"corrected": rows.height, "left_out": rows.height - len(list(_verbalised(tables)))}


def _verbalised(tables: Tables) -> Iterator[_Fact]:
    rows = _only(tables, VERBALISATIONS).drop_nulls("correction")
    for number, row in enumerate(rows.iter_rows(named=True)):
        subject, relation, object_ = re.findall(r"'([^']*)'", row["triples_raw"])
        texts = (row["verbalization"], row["correction"])
        label = _object(row["triples"], texts)
        if label is None:
            continue
        sentences = [_cut(text, label) for text in texts]
        name = row["triples"].removeprefix("(").partition(", ")[0]
        popularity = float(row["popularity"]) if row.get("popularity") else None
        yield _Fact(
            f"{subject}.{number}",
            (subject, name),
            relation,
            (object_, label),
            sentences,
            popularity=popularity,
            sample=VERBALISED,
        )


def _object(triple: str, texts: Sequence[str]) -> str | None:
    """The object's label: the longest part of the triple, from a comma on, that ends all texts."""
    parts = triple.rpartition(", start=")[0].split(", ")
    for start in range(2, len(parts)):
        label = ", ".join(parts[start:])
        if all(_cut(text, label) != text for text in texts):
            return label
    return None


def _cut(text: str, label: str) -> str:
    """The text before the label that ends it; the whole text if none does."""
    return re.sub(rf"\s+{re.escape(label)}\s*\.?$", "", text)


def _entity(row: Mapping[str, Any]) -> tuple[str, str]:
    label = str(row["gold_corrected"] or row["gold"])
    found = str(row["disambiguation"] or "")
    return (found if re.fullmatch(r"Q\d+", found) else label), label


def _only(tables: Tables, columns: Sequence[str], floats: Sequence[str] = ()) -> pl.DataFrame:
    if len(tables) != 1:
        raise InputError(f"there must be one table; there are {listed(tables)}.")
    ((name, rows),) = tables.items()
    types = {column: pl.Float64() if column in floats else pl.String() for column in columns}
    expected = [Column(column, (types[column],), required=True) for column in columns]
    check_columns(rows.lazy(), expected, f"{name}.*")
    return rows


def _as_facts(facts: Sequence[_Fact], relations: Relations) -> Facts:
    ids = list(dict.fromkeys(fact.relation_id for fact in facts))
    return checked(
        Facts(
            named(ids, relations),
            _frame("templates", map(_template, ids)),
            _frame("pairs", map(_pair, facts)),
            {"details": _frame("details", map(_detail, facts))},
            _knowledge_base(facts),
        )
    )


def _frame(table: str, rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=empty(table).schema)


def _template(relation_id: str) -> Mapping[str, Any]:
    name = {"template_id": f"{relation_id}.000", "relation_id": relation_id, "text": TEMPLATE}
    return {**name, "origin": "manual", "group": 0, "style": "statement"}


def _pair(fact: _Fact) -> Mapping[str, Any]:
    object_id, label = fact.object
    return {
        "pair_id": f"{fact.relation_id}.{fact.name}",
        "relation_id": fact.relation_id,
        "subject_id": fact.subject[0],
        "subjects": list(fact.sentences),
        "objects": [{"object_id": object_id, "labels": [label]}],
    }


def _detail(fact: _Fact) -> Mapping[str, Any]:
    return {
        "pair_id": f"{fact.relation_id}.{fact.name}",
        "relation_id": fact.relation_id,
        "object_id": fact.object[0],
        "popularity": fact.popularity,
        "sample": fact.sample,
        "human_score": fact.human_score,
    }


def _knowledge_base(facts: Sequence[_Fact]) -> KnowledgeBase:
    """What the facts themselves say; their sentences are no names of an entity."""
    ends = [end for fact in facts for end in (fact.subject, fact.object)]
    names = pl.DataFrame(
        [{"entity_id": entity, "labels": [label]} for entity, label in ends],
        schema={"entity_id": pl.String, "labels": pl.List(pl.String)},
    )
    triples = [(fact.subject[0], fact.relation_id, fact.object[0], None, None) for fact in facts]
    table = pl.DataFrame(triples, schema=empty("triples").schema, orient="row")
    return from_names(names, table.unique(maintain_order=True))
