"""Facts with their objects' entities, in the layout of the paper on distractors.

    facts.parquet        one fact per row (FACTS)
    templates.csv        relation_id, text: sentences with [X] that end in [Y]
    aliases.en.tsv       an id, a tab and its names: further labels; may be missing
    entities.parquet     with triples.parquet a knowledge base; both or none

Without a knowledge base of its own, the set's facts are one: the types of an entity are then the
relations that it is an object of, and the objects of its P31 and P279. Facts of relations without
a template are known and not asked.

In these files people put facts into sentences of their own, in place of templates of a relation:

    probing-gpt2-xl.parquet   what people asked GPT2-XL, and how well they found each fact known
    verbalisations.parquet    sentences made of templates, and their corrections

Such a sentence is a cloze: it stands in `subjects` of its fact, and the one template of every
relation is `[X] [Y]`. `subject_index` tells the sentences of a fact apart: of a verbalisation 0 is
the flawed and 1 the corrected one. Entities without an id go by their label.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from factsweep.operators.datasets import knowledge_base as bases
from factsweep.operators.datasets.columns import Column, check_columns
from factsweep.operators.datasets.facts import Facts, Relations, checked, manual, named, numbered
from factsweep.operators.datasets.facts import counts as counts_of_facts
from factsweep.operators.datasets.knowledge_base import KnowledgeBase, from_names, of_triples
from factsweep.operators.datasets.triples import facts_from_triples
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import columns, fitted, refuse, schema
from factsweep.operators.wording import listed

_NEEDED = ("subject", "subject_label", "relation", "object", "object_label")
FACTS = schema("""
    sample text, subject text, subject_label text, subject_description text, relation text,
    object text, object_label text, object_description text, start text, end text, popularity float
""")
TEMPLATES = schema("relation_id text, text text")
_FACT = ("relation_id", "subject_id", "object_id")
_COLUMNS = {
    "facts": [Column(name, (dtype,), name in _NEEDED) for name, dtype in FACTS.items()],
    "templates": [Column(name, (dtype,), required=True) for name, dtype in TEMPLATES.items()],
}
Tables = Mapping[str, pl.DataFrame]


def _triples(tables: Tables) -> pl.DataFrame:
    """The facts of the files, as of TRIPLES and `details`."""
    return _table(tables, "facts", FACTS).select(
        *("start", "end", "popularity", "sample"),
        subject_id="subject",
        subjects=pl.concat_list("subject_label"),
        relation_id="relation",
        object_id="object",
        labels=pl.concat_list("object_label"),
    )


def facts_from_tables(tables: Tables, relation_labels: Relations = None) -> Facts:
    """The facts of the files, by their names up to the first full stop; a pair has all its objects.

    `relation_labels` names the relations that are taken; without it all that have a template are,
    and their labels are their ids.

    Raises:
        InputError: a table or column is missing or unfit, or no fact has a template.
    """
    rows, templates = _triples(tables), _table(tables, "templates", TEMPLATES)
    base = _knowledge_base(tables, rows)
    if relation_labels is not None:
        rows = rows.filter(pl.col("relation_id").is_in(list(relation_labels)))
    asked = rows.join(templates, on="relation_id", how="semi", maintain_order="left")
    asked = asked.unique(_FACT, keep="first", maintain_order=True)
    texts = templates.with_columns(origin=pl.lit("manual"), group=pl.lit(0))
    entities = base.entities.select("entity_id", known="labels")
    named = asked
    for entity, names in (("subject_id", "subjects"), ("object_id", "labels")):
        named = named.join(
            entities, left_on=entity, right_on="entity_id", how="left", maintain_order="left"
        )
        named = named.with_columns(pl.coalesce("known", names).alias(names)).drop("known")
    facts = facts_from_triples(named, texts, relation_labels)
    asks = pl.col("text").str.contains("?", literal=True)
    details = asked.with_columns(pair_id=pl.format("{}.{}", "relation_id", "subject_id"))
    styles = pl.when(asks).then(pl.lit("question")).otherwise(pl.lit("statement"))
    return replace(
        facts,
        templates=facts.templates.with_columns(style=styles),
        further={"details": fitted(details, columns("details"), "details", ("human_score",))},
        knowledge_base=base,
    )


def counts(facts: Facts) -> dict[str, int]:
    """The size of the set and of its knowledge base."""
    assert facts.knowledge_base is not None
    sizes = counts_of_facts(facts)
    del sizes["derived_triples"]
    return sizes | bases.counts(facts.knowledge_base)


def figures(tables: Tables, facts: Facts) -> dict[str, int]:
    """The size of the set, and the facts that are not asked, for want of a template."""
    n, found = _triples(tables).unique(_FACT).height, counts(facts)
    return {**found, "without_template": n - found["unique_triples"]}


def _table(tables: Tables, name: str, schema: pl.Schema) -> pl.DataFrame:
    if name not in tables:
        raise InputError(f"the file {name}.* is missing; there are {listed(sorted(tables))}.")
    found = tables[name]
    check_columns(found.lazy(), _COLUMNS[name], f"{name}.* of the layout distractors")
    return fitted(found, schema, name, optional=schema)


def _knowledge_base(tables: Tables, rows: pl.DataFrame) -> KnowledgeBase:
    """That of the files, or one made of the facts and the aliases."""
    given = [name for name in ("entities", "triples") if name in tables]
    if len(given) == 1:
        raise InputError(f"there is {given[0]}.parquet alone; entities and triples go together.")
    if given:
        return bases.checked(KnowledgeBase(tables["entities"], tables["triples"]))
    further = []
    if "aliases" in tables:
        ids = pl.concat([rows["subject_id"], rows["object_id"]]).unique().implode()
        further.append(tables["aliases"].filter(pl.col("entity_id").is_in(ids)))
    # A fact of the set is right whatever its end: that it has one says when it was.
    return bases.checked(of_triples(rows.drop("end"), *further))


TEMPLATE = "[X] [Y]"
VERBALISED = "flawed and corrected"  # the sample of facts that stand in two such sentences
PROBING = schema("""
    fact_id text, relation text, element text, sentence text, gold text, gold_corrected text,
    disambiguation text, human_score float
""")
VERBALISATIONS = schema("triples_raw text, triples text, verbalization text, correction text")


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

    def first(column: str, element: str) -> pl.Expr:
        """What the first sentence that leaves an end of its fact open has there."""
        return pl.col(column).filter(element=element).first()

    ends = {f"{part}_id": first("id", part) for part in ("subject", "object")}
    ends |= {part: first("label", part) for part in ("subject", "object")}
    asked = pl.col("element") == "object"
    facts = rows.group_by(name="fact_id", maintain_order=True).agg(
        **ends,
        relation_id=first("relation", "object"),
        sentences=pl.col("sentence").filter(asked).str.strip_chars().unique(maintain_order=True),
        human_score=first("human_score", "object"),
    )
    half = (
        "fact {name} has no sentence that leaves its object or subject open; add one or drop the "
        "fact."
    )
    refuse(facts, {half: pl.any_horizontal(pl.col("subject", "object").is_null())}, ["name"])
    return _as_facts(fitted(facts, _FACTS, "facts", ("popularity", "sample")), relations)


def verbalised(tables: Tables, relations: Relations = None) -> Facts:
    """The facts with a flawed and a corrected sentence, both of which end in the object.

    A sentence may have a full stop behind the object; the others are left out (`n_verbalised`).

    Raises:
        InputError: there is not one table, or it lacks a column.
    """
    return _as_facts(_verbalised(tables), relations)


def n_sentences(facts: Facts) -> dict[str, int]:
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


def _only(tables: Tables, expected: pl.Schema) -> pl.DataFrame:
    if len(tables) != 1:
        raise InputError(f"there must be one table; there are {listed(tables)}.")
    ((name, rows),) = tables.items()
    needed = [Column(column, (dtype,), required=True) for column, dtype in expected.items()]
    check_columns(rows.lazy(), needed, f"{name}.*")
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
    # What the facts themselves say; their sentences are no names of an entity.
    ends = facts.select(
        entity_id=pl.concat_list("subject_id", "object_id"),
        labels=pl.concat_list("subject", "object"),
    )
    labels = ends.explode("entity_id", "labels").with_columns(pl.concat_list("labels"))
    triples = fitted(facts, columns("triples"), "triples", ("start", "end"))
    base = from_names(labels, triples.unique(maintain_order=True))
    return checked(Facts(named(ids, relations), templates, pairs, {"details": details}, base))
