"""Facts with their objects' entities, in the layout of the paper on distractors.

    facts.parquet        one fact per row (FACTS)
    templates.csv        relation_id, text: sentences with [X] that end in [Y]
    aliases.en.tsv       an id, a tab and its names: further labels; may be missing
    entities.parquet     with triples.parquet a knowledge base; both or none

Without a knowledge base of its own, the set's facts are one: the types of an entity are then the
relations that it is an object of, and the objects of its P31 and P279. Facts of relations without
a template are known and not asked.
"""

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from factsweep.operators.datasets.columns import Column, check_columns
from factsweep.operators.datasets.entities import of_triples
from factsweep.operators.datasets.facts import Facts, Relations
from factsweep.operators.datasets.facts import counts as counts_of_facts
from factsweep.operators.datasets.triples import facts_from_triples
from factsweep.operators.errors import InputError
from factsweep.operators.knowledge_base import knowledge_base as bases
from factsweep.operators.knowledge_base.knowledge_base import KnowledgeBase
from factsweep.operators.schemas import columns, schema
from factsweep.operators.schemas.checks import fitted
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
    facts = facts_from_triples(_named(asked, base), texts, relation_labels)
    asks = pl.col("text").str.contains("?", literal=True)
    named = asked.with_columns(pair_id=pl.format("{}.{}", "relation_id", "subject_id"))
    styles = pl.when(asks).then(pl.lit("question")).otherwise(pl.lit("statement"))
    return replace(
        facts,
        templates=facts.templates.with_columns(style=styles),
        further={"details": fitted(named, columns("details"), "details", ("human_score",))},
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


def _named(asked: pl.DataFrame, base: KnowledgeBase) -> pl.DataFrame:
    """The facts with all names that the knowledge base has of their entities."""
    for entity, names in (("subject_id", "subjects"), ("object_id", "labels")):
        known = base.entities.select(pl.col("entity_id").alias(entity), known="labels")
        asked = asked.join(known, on=entity, how="left", maintain_order="left")
        asked = asked.with_columns(pl.coalesce("known", names).alias(names)).drop("known")
    return asked
