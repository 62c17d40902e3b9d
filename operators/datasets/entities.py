"""Facts of one object each, and the knowledge base that a set's own facts make."""

from dataclasses import replace

import polars as pl

from factsweep.operators.datasets import facts as facts_of
from factsweep.operators.datasets.facts import Facts, Slice
from factsweep.operators.knowledge_base.knowledge_base import TYPE_RELATIONS, KnowledgeBase
from factsweep.operators.schemas import columns, empty
from factsweep.operators.schemas.checks import fitted


def knowledge_base(facts: Facts) -> KnowledgeBase:
    """The subjects and objects of the facts, and the facts as triples.

    A name's entity is its id; an object without an id is known by its first label. The types of an
    entity are the relations that it is an object of, and the objects of its own P31 and P279.
    """
    return of_triples(
        facts.pairs.explode("objects").unnest("objects").with_columns(object_id=object_id())
    )


def of_triples(rows: pl.DataFrame, *names: pl.DataFrame) -> KnowledgeBase:
    """The knowledge base of triples with names (the columns of TRIPLES), and of further names.

    The rows may say when a triple is true, in `start` and `end`.
    """
    subjects = rows.select(entity_id="subject_id", labels="subjects")
    objects = rows.select(entity_id="object_id", labels="labels")
    triples = fitted(rows, columns("triples"), "triples", ("start", "end"))
    named = pl.concat([subjects, objects, *names])
    return from_names(named, triples.unique(maintain_order=True))


def object_id() -> pl.Expr:
    """The id of an object (columns object_id, labels): its first label where it has no id."""
    return pl.coalesce("object_id", pl.col("labels").list.first())


def from_names(names: pl.DataFrame, triples: pl.DataFrame) -> KnowledgeBase:
    """The entities that have names (entity_id, labels; one row or more each), with the triples.

    An entity's popularity is the natural logarithm of 1 + the triples that it stands in.
    """
    entities = names.explode("labels").unique(maintain_order=True)
    entities = entities.group_by("entity_id", maintain_order=True).agg("labels")
    entities = (
        entities.join(types(triples), on="entity_id", how="left", maintain_order="left")
        .join(_popularity(triples), on="entity_id", how="left", maintain_order="left")
        .with_columns(
            pl.col("types").fill_null([]),
            pl.col("popularity").fill_null(0.0),
            description=pl.lit(None, pl.String),
        )
        .select(empty("entities").columns)
    )
    return KnowledgeBase(entities, triples.select(empty("triples").columns))


def types(triples: pl.DataFrame) -> pl.DataFrame:
    """entity_id, types: declared ones, and the relations that the entity is an object of."""
    declared = triples.filter(pl.col("relation_id").is_in(TYPE_RELATIONS))
    own = declared.select(entity_id="subject_id", types="object_id")
    others = triples.select(entity_id="object_id", types="relation_id")
    found = pl.concat([own, others]).unique().sort("entity_id", "types")
    return found.group_by("entity_id", maintain_order=True).agg("types")


def _popularity(triples: pl.DataFrame) -> pl.DataFrame:
    stands = pl.concat([triples["subject_id"], triples["object_id"].alias("subject_id")])
    counted = stands.value_counts().rename({"subject_id": "entity_id"})
    return counted.select("entity_id", popularity=(pl.col("count").cast(pl.Float64) + 1).log())


def sliced(facts: Facts, part: Slice) -> Facts:
    """The chosen part as facts of one object, with `details` and a knowledge base.

    Where the set brings no knowledge base, it is made of all its facts, whichever part is chosen.

    Raises:
        InputError: a relation that the set does not have, or a part without pairs or names.
    """
    base = facts.knowledge_base or knowledge_base(facts)
    return single_objects(facts_of.sliced(replace(facts, knowledge_base=base), part))


def single_objects(facts: Facts) -> Facts:
    """A pair of several objects as several pairs, each named after its object, too.

    An object without an id is known by its first label. `details` has a row for each fact; what
    the set does not give there is null, but for the popularity: that of the subject.

    >>> objects = [{"object_id": "Q1", "labels": ["a"]}, {"object_id": None, "labels": ["b"]}]
    >>> row = {"pair_id": "P1.Q9", "relation_id": "P1", "subject_id": "Q9", "subjects": ["s"]}
    >>> pairs = pl.DataFrame([{**row, "objects": objects}], schema=empty("pairs").schema)
    >>> found = single_objects(Facts(empty("relations"), empty("templates"), pairs))
    >>> found.pairs["pair_id"].to_list(), found.further["details"]["object_id"].to_list()
    (['P1.Q9.Q1', 'P1.Q9.b'], ['Q1', 'b'])
    """
    several = pl.col("objects").list.len() > 1
    rows = facts.pairs.with_columns(whole="pair_id", several=several)
    rows = rows.explode("objects").unnest("objects").with_columns(object_id=object_id())
    one = pl.format("{}.{}", "pair_id", "object_id")
    rows = rows.unique(["whole", "object_id"], keep="first", maintain_order=True).with_columns(
        pair_id=pl.when("several").then(one).otherwise("pair_id"),
        objects=pl.concat_list(pl.struct("object_id", "labels")),
    )
    further = {
        name: _renamed(table, rows) for name, table in facts.further.items() if name != "details"
    }
    details = _details_of(rows, facts)
    pairs = rows.select(facts.pairs.columns)
    return replace(facts, pairs=pairs, further={**further, "details": details})


def _renamed(table: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of a further table under the names of the facts that its pairs became."""
    names = rows.select("whole", named="pair_id")
    found = table.join(names, left_on="pair_id", right_on="whole", maintain_order="left")
    return found.with_columns(pair_id="named").select(table.columns)


def _details_of(rows: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    given = facts.further.get("details", empty("details")).drop("relation_id")
    given = given.rename({"pair_id": "whole"})
    found = rows.select("pair_id", "whole", "relation_id", "subject_id", "object_id")
    found = found.join(given, on=["whole", "object_id"], how="left", maintain_order="left")
    if facts.knowledge_base is not None:
        known = facts.knowledge_base.entities.select(subject_id="entity_id", known="popularity")
        found = found.join(known, on="subject_id", how="left", maintain_order="left")
        found = found.with_columns(popularity=pl.coalesce("popularity", "known"))
    return found.select(empty("details").columns)
