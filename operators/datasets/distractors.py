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

import polars as pl

from factsweep.operators.datasets.columns import Column, check_columns
from factsweep.operators.datasets.entities import from_names
from factsweep.operators.datasets.facts import Facts, checked, named
from factsweep.operators.datasets.facts import counts as counts_of_facts
from factsweep.operators.errors import InputError
from factsweep.operators.knowledge_base import knowledge_base as bases
from factsweep.operators.knowledge_base.knowledge_base import KnowledgeBase
from factsweep.operators.schemas import empty, schema
from factsweep.operators.wording import listed

_NEEDED = ("subject", "subject_label", "relation", "object", "object_label")
FACTS = schema("""
    sample text, subject text, subject_label text, subject_description text, relation text,
    object text, object_label text, object_description text, start text, end text, popularity float
""")
TEMPLATES = schema("relation_id text, text text")
_COLUMNS = {
    "facts": [Column(name, (dtype,), name in _NEEDED) for name, dtype in FACTS.items()],
    "templates": [Column(name, (dtype,), required=True) for name, dtype in TEMPLATES.items()],
}
Tables = Mapping[str, pl.DataFrame]


def facts_from_tables(tables: Tables, relation_labels: Mapping[str, str] | None = None) -> Facts:
    """The facts of the files, by their names up to the first full stop.

    Each subject and relation is a pair with all its objects. `relation_labels` names the relations
    that are taken; without it all that have a template are, and their labels are their ids.

    Raises:
        InputError: a table or column is missing or unfit, or no fact has a template.
    """
    rows, templates = _table(tables, "facts", FACTS), _table(tables, "templates", TEMPLATES)
    base = _knowledge_base(tables, rows)
    asked = rows.join(templates, left_on="relation", right_on="relation_id", how="semi")
    if relation_labels is not None:
        asked = asked.filter(pl.col("relation").is_in(list(relation_labels)))
    asked = asked.unique(["relation", "subject", "object"], keep="first", maintain_order=True)
    relations = asked["relation"].unique(maintain_order=True).to_list()
    own, pairs = _templates(templates, relations), _pairs(asked, base)
    details = {"details": _details(asked)}
    return checked(Facts(named(relations, relation_labels), own, pairs, details, base))


def counts(facts: Facts) -> dict[str, int]:
    """The size of the set and of its knowledge base."""
    assert facts.knowledge_base is not None
    sizes = counts_of_facts(facts)
    names = ("relations", "templates", "pairs", "unique_triples", "prompts")
    return {**{name: sizes[name] for name in names}, **bases.counts(facts.knowledge_base)}


def figures(tables: Tables, facts: Facts) -> dict[str, int]:
    """The size of the set, and the facts that are not asked, for want of a template."""
    rows = _table(tables, "facts", FACTS).unique(["relation", "subject", "object"])
    found = counts(facts)
    return {**found, "without_template": rows.height - found["unique_triples"]}


def _table(tables: Tables, name: str, schema: pl.Schema) -> pl.DataFrame:
    if name not in tables:
        raise InputError(f"the file {name}.* is missing; there are {listed(sorted(tables))}.")
    found = tables[name]
    check_columns(found.lazy(), _COLUMNS[name], f"{name}.* of the layout distractors")
    absent = [column for column in schema if column not in found.columns]
    found = found.with_columns(pl.lit(None, schema[column]).alias(column) for column in absent)
    return found.select(schema.names())


def _knowledge_base(tables: Tables, rows: pl.DataFrame) -> KnowledgeBase:
    """That of the files, or one made of the facts and the aliases."""
    given = [name for name in ("entities", "triples") if name in tables]
    if len(given) == 1:
        raise InputError(f"there is {given[0]}.parquet alone; entities and triples go together.")
    if given:
        return bases.checked(KnowledgeBase(tables["entities"], tables["triples"]))
    names = [
        rows.select(entity_id=part, labels=pl.concat_list(f"{part}_label"))
        for part in ("subject", "object")
    ]
    if "aliases" in tables:
        known = pl.concat(names).select("entity_id").unique()
        names.append(tables["aliases"].join(known, on="entity_id", how="semi"))
    triples = rows.select(
        "start", "end", subject_id="subject", relation_id="relation", object_id="object"
    )
    # A fact of the set is right whatever its end: that it has one says when it was.
    base = from_names(pl.concat(names), triples.with_columns(end=None).unique(maintain_order=True))
    return bases.checked(base)


def _pairs(asked: pl.DataFrame, base: KnowledgeBase) -> pl.DataFrame:
    labels = base.entities.select("entity_id", "labels")
    for part in ("subject", "object"):
        named = labels.select(
            pl.col("entity_id").alias(part), pl.col("labels").alias(f"{part}_names")
        )
        own = pl.concat_list(f"{part}_label")
        asked = asked.join(named, on=part, how="left", maintain_order="left")
        asked = asked.with_columns(pl.coalesce(f"{part}_names", own).alias(f"{part}_names"))
    objects = pl.struct(object_id="object", labels="object_names")
    return (
        asked.group_by("relation", "subject", maintain_order=True)
        .agg(pl.col("subject_names").first(), objects=objects)
        .select(
            pair_id=_pair_id(),
            relation_id="relation",
            subject_id="subject",
            subjects="subject_names",
            objects="objects",
            split=pl.lit(None, pl.String),
        )
    )


def _pair_id() -> pl.Expr:
    return pl.format("{}.{}", "relation", "subject")


def _details(asked: pl.DataFrame) -> pl.DataFrame:
    return asked.select(
        "start",
        "end",
        "popularity",
        "sample",
        pair_id=_pair_id(),
        relation_id="relation",
        object_id="object",
        human_score=pl.lit(None, pl.Float64),
    ).select(empty("details").columns)


def _templates(rows: pl.DataFrame, relations: list[str]) -> pl.DataFrame:
    number = pl.int_range(pl.len()).over("relation_id").cast(pl.String).str.zfill(3)
    order = pl.DataFrame({"relation_id": relations})
    return (
        order.join(rows, on="relation_id", maintain_order="left_right")
        .select(
            "relation_id",
            "text",
            template_id=pl.format("{}.{}", "relation_id", number),
            origin=pl.lit("manual"),
            group=pl.lit(0, pl.UInt16),
            style=pl.when(pl.col("text").str.contains("?", literal=True))
            .then(pl.lit("question"))
            .otherwise(pl.lit("statement")),
        )
        .select(empty("templates").columns)
    )
