"""Facts of one object each: every right object of a pair is a fact of its own."""

from dataclasses import replace

import polars as pl

from factsweep.operators.datasets import facts as facts_of
from factsweep.operators.datasets.entities import knowledge_base, object_id
from factsweep.operators.datasets.facts import Facts, Slice
from factsweep.operators.schemas import empty


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
    details = _details(rows, facts)
    pairs = rows.select(facts.pairs.columns)
    return replace(facts, pairs=pairs, further={**further, "details": details})


def _renamed(table: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of a further table under the names of the facts that its pairs became."""
    names = rows.select("whole", named="pair_id")
    found = table.join(names, left_on="pair_id", right_on="whole", maintain_order="left")
    return found.with_columns(pair_id="named").select(table.columns)


def _details(rows: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    given = facts.further.get("details", empty("details")).drop("relation_id")
    given = given.rename({"pair_id": "whole"})
    found = rows.select("pair_id", "whole", "relation_id", "subject_id", "object_id")
    found = found.join(given, on=["whole", "object_id"], how="left", maintain_order="left")
    if facts.knowledge_base is not None:
        known = facts.knowledge_base.entities.select(subject_id="entity_id", known="popularity")
        found = found.join(known, on="subject_id", how="left", maintain_order="left")
        found = found.with_columns(popularity=pl.coalesce("popularity", "known"))
    return found.select(empty("details").columns)
