"""Columns of a plain table of facts: their names, those that mean the same, and MyriadLAMA's."""

from collections.abc import Collection

import polars as pl

from factsweep.operators.errors import InputError

# What the columns of the plain layout are called in the others.
_PLAIN = {"relation": "rel_uri", "template": "template", "subject": "sub_ent", "object": "obj_ents"}
# What the columns of a plain table of four are called elsewhere, in any case.
MEANT = {
    "relation": ("predicate", "property", "rel"),
    "template": ("pattern", "sentence", "prompt"),
    "subject": ("sub", "subj", "head", "subject_label", "sub_label"),
    "object": ("obj", "tail", "answer", "object_label", "obj_label"),
}
PLAIN_MORE = {
    "subject_id": "sub_uri",
    "subject_aliases": "sub_aliases",
    "object_id": "obj_uris",
    "object_aliases": "obj_aliases",
    "popularity": "fact_popularity",
    "sample": "fact_sample",
    "type": "fact_type",
}


def meant(columns: Collection[str]) -> dict[str, str]:
    """Which columns of a plain table have another name; none where it is no such table.

    Each of its columns may have capitals, and blanks around its name. A table of four columns may
    have other names for them.

    >>> meant(["Rel", "template", "head", "tail"]), meant(["rel", "template", "head", "x"])
    ({'Rel': 'relation', 'head': 'subject', 'tail': 'object'}, {})
    >>> meant(["relation", "template", " subject", "Object", "Type", "note"])
    {' subject': 'subject', 'Object': 'object', 'Type': 'type'}
    """
    respelled = {
        column: name
        for name in (*_PLAIN, *PLAIN_MORE, "is_manual")
        if name not in columns
        for column in columns
        if column.strip().casefold() == name
    }
    if {*_PLAIN} <= {*columns, *respelled.values()}:
        return respelled
    names = {each: name for name, others in MEANT.items() for each in (name, *others)}
    found = {column: names.get(column.strip().casefold()) for column in columns}
    if len(found) != len(MEANT) or {*found.values()} != {*MEANT}:
        return {}
    return {column: name for column, name in found.items() if name and name != column}


def alike(columns: Collection[str], wanted: Collection[str]) -> dict[str, str]:
    """Which columns must be meant by wanted names that a table lacks, whatever else it has.

    >>> alike(["Relation", " head", "note", "date"], ["relation", "subject", "date"])
    {'Relation': 'relation', ' head': 'subject'}
    >>> alike(["head", "sub"], ["subject"])
    {}
    """
    found = {}
    for name in wanted:
        called = (name, *MEANT.get(name, ()))
        meant_so = [each for each in columns if each.strip().casefold() in called]
        if name not in columns and len(meant_so) == 1:
            found[meant_so[0]] = name
    return found


def is_plain(rows: pl.LazyFrame) -> bool:
    """Whether the rows are those of a plain table of facts."""
    names = rows.collect_schema().names()
    return {*_PLAIN} <= {meant(names).get(name, name) for name in names}


def titles_of(rows: pl.LazyFrame) -> dict[str, str]:
    """The names that columns have in a plain table, by those of MyriadLAMA rows."""
    if not is_plain(rows):
        return {}
    titles = {name: plain for plain, name in {**_PLAIN, **PLAIN_MORE}.items()}
    has_ids = "object_id" in rows.collect_schema()
    return titles if has_ids else {**titles, "obj_uris": "object"}


def as_myriadlama(rows: pl.LazyFrame) -> pl.LazyFrame:
    """A plain table with the names of the others; an object without an id has its label."""
    rows = rows.rename(meant(rows.collect_schema().names()))
    schema = rows.collect_schema()
    if {*_PLAIN} - {*schema} or {*_PLAIN.values()} & {*schema} - {"template"}:
        if {*_PLAIN} - {*schema} == {"template"} and "rel_uri" not in schema:
            raise InputError(
                "column template is missing; add it, or have `factsweep build facts FILE` write "
                "templates, and a benchmark with them."
            )
        return rows
    more = {old: new for old, new in PLAIN_MORE.items() if old in schema}
    texts = [name for name in (*_PLAIN, *more) if schema[name] == pl.String]
    rows = rows.with_columns(pl.col(texts).str.strip_chars()).rename({**_PLAIN, **more})
    made = [] if "obj_uris" in more.values() else [pl.col("obj_ents").alias("obj_uris")]
    manual = [] if "is_manual" in schema else [pl.lit(value=True).alias("is_manual")]
    return rows.with_columns(*made, *manual)
