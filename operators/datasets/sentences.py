"""Facts that people put into sentences of their own, in place of templates of a relation.

    probing-gpt2-xl.parquet   what people asked GPT2-XL, and how well they found each fact known
    verbalisations.parquet    sentences made of templates, and their corrections

Such a sentence is a cloze: it stands in `subjects` of its fact, and the one template of every
relation is `[X] [Y]`. `subject_index` tells the sentences of a fact apart: of a verbalisation 0 is
the flawed and 1 the corrected one. Entities without an id go by their label.
"""

import re
from collections.abc import Mapping, Sequence

import polars as pl

from factsweep.operators.datasets.columns import Column, check_columns
from factsweep.operators.datasets.entities import from_names
from factsweep.operators.datasets.facts import Facts, Relations, checked, manual, named, numbered
from factsweep.operators.errors import InputError
from factsweep.operators.knowledge_base.knowledge_base import KnowledgeBase
from factsweep.operators.schemas import columns, schema
from factsweep.operators.schemas.checks import fitted, refuse
from factsweep.operators.wording import listed

TEMPLATE = "[X] [Y]"
VERBALISED = "flawed and corrected"  # the sample of facts that stand in two such sentences
PROBING = schema("""
    fact_id text, relation text, element text, sentence text, gold text, gold_corrected text,
    disambiguation text, human_score float
""")
VERBALISATIONS = schema("triples_raw text, triples text, verbalization text, correction text")
Tables = Mapping[str, pl.DataFrame]


# A fact and its sentences; `subject` and `object` are the labels of its ends.
_FACTS = schema("""
    name text, subject_id text, subject text, relation_id text, object_id text, object text,
    sentences text[], human_score float, popularity float, sample text
""")


def probed(tables: Tables, relations: Relations = None) -> Facts:
    """The facts that people asked for, with the sentences that leave their object open.

    The subject is the right answer of the sentences that leave that open. A sentence that stands
    twice counts once.

    Raises:
        InputError: there is not one table, or it lacks a column.
    """
    rows = _only(tables, PROBING)
    label = pl.coalesce(pl.col("gold_corrected", "gold").replace("", None))
    is_id = pl.col("disambiguation").str.contains(r"^Q\d+$").fill_null(value=False)
    rows = rows.with_columns(label=label, id=pl.when(is_id).then("disambiguation").otherwise(label))
    ends = {f"{part}_id": _first("id", part) for part in ("subject", "object")}
    ends |= {part: _first("label", part) for part in ("subject", "object")}
    asked = pl.col("element") == "object"
    facts = rows.group_by(name="fact_id", maintain_order=True).agg(
        **ends,
        relation_id=_first("relation", "object"),
        sentences=pl.col("sentence").filter(asked).str.strip_chars().unique(maintain_order=True),
        human_score=_first("human_score", "object"),
    )
    half = (
        "fact {name} has no sentence that leaves its object or subject open; add one or drop the "
        "fact."
    )
    refuse(facts, {half: pl.any_horizontal(pl.col("subject", "object").is_null())}, ["name"])
    return _as_facts(fitted(facts, _FACTS, "facts", ("popularity", "sample")), relations)


def _first(column: str, element: str) -> pl.Expr:
    """What the first sentence that leaves an end of its fact open has there."""
    return pl.col(column).filter(element=element).first()


def verbalised(tables: Tables, relations: Relations = None) -> Facts:
    """The facts with a flawed and a corrected sentence, both of which end in the object.

    A sentence may have a full stop behind the object; the others are left out
    (`n_verbalised`).

    Raises:
        InputError: there is not one table, or it lacks a column.
    """
    return _as_facts(_verbalised(tables), relations)


def counts(facts: Facts) -> dict[str, int]:
    """The size of such a set."""
    sizes = {"relations": facts.relations.height, "pairs": facts.pairs.height}
    return {**sizes, "sentences": int(facts.pairs["subjects"].list.len().sum())}


def n_verbalised(tables: Tables) -> dict[str, int]:
    """How many sentences are corrected, and how many of them are left out."""
    rows = _only(tables, VERBALISATIONS).drop_nulls("correction")
    return {"corrected": rows.height, "left_out": rows.height - _verbalised(tables).height}


def _verbalised(tables: Tables) -> pl.DataFrame:
    facts = []
    rows = _only(tables, VERBALISATIONS).drop_nulls("correction")
    for number, row in enumerate(rows.iter_rows(named=True)):
        subject, relation, object_ = re.findall(r"'([^']*)'", row["triples_raw"])
        texts = (row["verbalization"], row["correction"])
        label = _object(row["triples"], texts)
        if label is not None:
            name = row["triples"].removeprefix("(").partition(", ")[0]
            sentences = [_cut(text, label) for text in texts]
            popularity = float(row["popularity"]) if row.get("popularity") else None
            fact = (f"{subject}.{number}", subject, name, relation, object_, label, sentences)
            facts.append((*fact, None, popularity, VERBALISED))
    return pl.DataFrame(facts, _FACTS, orient="row")


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


def _only(tables: Tables, columns: pl.Schema) -> pl.DataFrame:
    if len(tables) != 1:
        raise InputError(f"there must be one table; there are {listed(tables)}.")
    ((name, rows),) = tables.items()
    expected = [Column(column, (dtype,), required=True) for column, dtype in columns.items()]
    check_columns(rows.lazy(), expected, f"{name}.*")
    return rows


def _as_facts(facts: pl.DataFrame, relations: Relations) -> Facts:
    ids = facts["relation_id"].unique(maintain_order=True).to_list()
    facts = facts.with_columns(pair_id=pl.format("{}.{}", "relation_id", "name"))
    right = pl.struct("object_id", labels=pl.concat_list("object"))
    pairs = facts.select(
        "pair_id",
        "relation_id",
        "subject_id",
        subjects="sentences",
        objects=pl.concat_list(right),
        split=pl.lit(None, pl.String),
    )
    templates = numbered(manual((each, TEMPLATE) for each in ids))
    details = fitted(facts, columns("details"), "details", ("start", "end"))
    base = _knowledge_base(facts)
    return checked(Facts(named(ids, relations), templates, pairs, {"details": details}, base))


def _knowledge_base(facts: pl.DataFrame) -> KnowledgeBase:
    """What the facts themselves say; their sentences are no names of an entity."""
    ends = facts.select(
        entity_id=pl.concat_list("subject_id", "object_id"),
        labels=pl.concat_list("subject", "object"),
    )
    names = ends.explode("entity_id", "labels").with_columns(pl.concat_list("labels"))
    triples = fitted(facts, columns("triples"), "triples", ("start", "end"))
    return from_names(names, triples.unique(maintain_order=True))
