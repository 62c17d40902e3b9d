"""MyriadLAMA: rows as its authors publish them (docs/data.md) → the canonical tables, and back.

A template that is not manual is a paraphrase of the last manual one before it. Where there is no
`sub_uri`, `uuid` names the subject if it repeats.
"""

import re
from collections.abc import Mapping

import polars as pl

from factsweep.operators.datasets.columns import Column, check_columns
from factsweep.operators.datasets.facts import (
    Facts,
    Relations,
    check_facts,
    number_templates,
    relation_table,
)
from factsweep.operators.datasets.layouts import as_rows, decode_cells, is_plain, titles_of
from factsweep.operators.datasets.object_types import TYPES, type_name
from factsweep.operators.schemas import empty, refuse

_NAME, _NAMES, _NAME_LISTS = pl.String(), pl.List(pl.String), pl.List(pl.List(pl.String))
_TEXT = ("rel_uri", "template", "sub_ent")
_TYPE = type_name(pl.col("fact_type"))
COLUMNS = (
    Column("rel_uri", (_NAME,), True, ("predicate_id", "property", "relation")),
    Column("template", (_NAME,), True, ("pattern", "prompt", "sentence")),
    Column("is_manual", (pl.Boolean(), pl.Int64()), True, ("manual",)),
    Column("sub_ent", (_NAME,), True, ("sub_label", "subject", "head", "entity")),
    Column("obj_uris", (_NAMES, _NAME), True, ("obj_uri", "answer_ids", "tail_id")),
    Column("obj_ents", (_NAMES, _NAME), True, ("obj_label", "answers", "tail")),
    Column("obj_aliases", (_NAME_LISTS, _NAMES), False, ("answer_aliases", "synonyms")),
    Column("sub_uri", (_NAME,), False, ("subject_id", "qid", "head_id")),
    Column("sub_aliases", (_NAMES,), False, ("subject_names", "synonyms")),
    Column("uuid", (_NAME,), False, ("id",)),
    # Of a plain table alone, whose `popularity`, `sample` and `type` they are.
    Column("fact_popularity", (_NAME, pl.Float64(), pl.Int64()), False),
    Column("fact_sample", (_NAME,), False),
    Column("fact_type", (_NAME,), False),
)


def facts_from_rows(rows: pl.LazyFrame, relation_labels: Relations = None) -> Facts:
    """The canonical tables of MyriadLAMA rows.

    `relation_labels` names all relations that may stand in the rows, by id; without it every
    relation is taken and its label is its id.

    Raises:
        InputError: a missing column, a wrong type, an empty value, or as `check_facts`.
    """
    titles, rows = titles_of(rows), _rows(rows)
    subject = _subject_column(rows)
    _check_values(rows, subject, relation_labels, titles)
    templates = _templates(rows)
    relations = relation_table(
        templates["relation_id"].unique(maintain_order=True), relation_labels
    )
    pairs, details = _pairs(rows, subject)
    return check_facts(Facts(relations, templates, pairs, details))


def contradictions(rows: pl.LazyFrame) -> dict[str, int]:
    """How many pairs have rows that name other subjects or objects; how many ids have two labels.

    Of a pair the first row counts.
    """
    rows = _rows(rows)
    subject = _subject_column(rows)
    fields = [pl.col(n).hash().n_unique() > 1 for n in ("sub_ent", "obj_uris", "obj_ents")]
    pairs = rows.group_by("relation_id", subject).agg(differ=pl.any_horizontal(fields))
    labels = rows.group_by(subject).agg(differ=pl.col("sub_ent").n_unique() > 1)
    tables = {"contradicting_pairs": pairs, "subjects_of_two_labels": labels}
    return {
        name: int(table.select(pl.col("differ").sum()).collect(engine="streaming").item())
        for name, table in tables.items()
    }


def _rows(rows: pl.LazyFrame) -> pl.LazyFrame:
    """One row per pair and template, of the columns that are read, each with its number."""
    are_plain = is_plain(rows)
    rows = decode_cells(rows)
    check_columns(rows, COLUMNS, "MyriadLAMA rows")
    names = {column.name for column in COLUMNS}
    columns = [name for name in rows.collect_schema() if name in names]
    rows = rows.select(columns).with_row_index("row")
    rows = as_rows(rows, are_plain=are_plain)
    return rows.with_row_index("place").with_columns(
        relation_id=pl.col("rel_uri").str.split("/").list.last(),
        is_manual=pl.col("is_manual").cast(pl.Boolean),
    )


def _check_values(
    rows: pl.LazyFrame, subject: str, relation_labels: Relations, titles: Mapping[str, str]
) -> None:
    """Refuse rows with missing values; `titles` are the names of the columns in the file."""
    problems = {f"{name} is empty": _is_blank(pl.col(name)) for name in (*_TEXT, subject)}
    problems["rel_uri names no relation"] = _is_blank(pl.col("relation_id"))
    problems["is_manual is empty"] = pl.col("is_manual").is_null()
    labels, uris = pl.col("obj_ents"), pl.col("obj_uris")
    problems["obj_ents is empty"] = labels.list.len().fill_null(0) == 0
    problems["obj_ents has an empty label"] = labels.list.eval(_is_blank(pl.element())).list.any()
    are_parallel = uris.list.len().fill_null(0) == labels.list.len()
    problems["obj_uris and obj_ents differ in length"] = ~are_parallel
    if "fact_popularity" in rows.collect_schema():
        is_filled = ~_is_blank(pl.col("fact_popularity").cast(pl.String))
        is_number = _popularity().is_finite().fill_null(False)
        problems["popularity is no number"] = is_filled & ~is_number
    if "fact_type" in rows.collect_schema():
        # Where no row has the name of a type, the column says something of its own.
        is_declared = _TYPE.is_in(TYPES).any() & (_TYPE != "")
        problems[f"type is none of {', '.join(TYPES)}"] = is_declared & ~_TYPE.is_in(TYPES)
    uris = pl.col("rel_uri").unique().sort()
    relations = rows.group_by("relation_id").agg(n=uris.len(), first=uris.get(0), last=uris.get(-1))
    two = "rel_uri {first!r} and {last!r} both name the relation {relation_id}; write one."
    refuse(relations, {two: pl.col("n") > 1}, ["first", "last", "relation_id"])
    if relation_labels is not None:
        is_unknown = ~pl.col("relation_id").is_in(list(relation_labels))
        problems["the catalog entry does not name its relation"] = is_unknown
    row = "row {row} (counted from 0): %s; correct or drop the row."
    problems = {
        row % re.sub(r"\w+", lambda word: titles.get(word[0], word[0]), problem): is_unfit
        for problem, is_unfit in problems.items()
    }
    refuse(rows, problems, ["row"])


def _is_blank(text: pl.Expr) -> pl.Expr:
    return text.fill_null("").str.strip_chars() == ""


def _templates(rows: pl.LazyFrame) -> pl.DataFrame:
    """One row per template, in the order of first appearance in its relation."""
    templates = rows.group_by("relation_id", "template")
    texts = templates.agg(pl.min("place"), pl.first("is_manual")).collect(engine="streaming")
    texts = texts.sort("place")
    # Each paraphrase follows its manual template. Groups of unequal sizes show that the file has
    # another order, and it is unknown which paraphrase belongs to which manual template.
    group = pl.col("is_manual").cum_sum().over("relation_id").cast(pl.Int64) - 1
    texts = texts.with_columns(group=group.cast(pl.UInt16, strict=False))
    sizes = texts.group_by("relation_id", "group").len()
    is_ordered = (pl.n_unique("len") == 1) & pl.col("group").is_not_null().all()
    relations = sizes.group_by("relation_id").agg(is_ordered=is_ordered)
    origin = pl.when("is_manual").then(pl.lit("manual")).otherwise(pl.lit("paraphrase"))
    return number_templates(
        texts.join(relations, on="relation_id", maintain_order="left").select(
            "relation_id", text="template", origin=origin, group=pl.when("is_ordered").then("group")
        )
    )


def _pairs(rows: pl.LazyFrame, subject: str) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
    """One row per subject-relation pair, in the order of first appearance, and further tables.

    A plain table has `details` where it has the popularity or the sample of its facts, and
    `object_types` where it declares them. The first row of a pair counts.
    """
    schema = rows.collect_schema()
    columns = {name: pl.col(name) for name in ("sub_ent", "obj_uris", "obj_ents")}
    for name in ("sub_aliases", "obj_aliases"):
        columns[name] = pl.col(name) if name in schema else pl.lit(None, _NAMES)
    facts = {"popularity": _popularity(), "sample": pl.col("fact_sample"), "type": _TYPE}
    facts = {name: column for name, column in facts.items() if f"fact_{name}" in schema}
    table = (
        rows.group_by("relation_id", pl.col(subject).alias("subject_id"))
        .agg(pl.min("place"), **{n: column.first() for n, column in (columns | facts).items()})
        .collect(engine="streaming")
        .sort("place")
        .with_columns(pair_id=pl.format("{}.{}", "relation_id", "subject_id"))
    )
    pairs = table.select(
        "pair_id",
        "relation_id",
        "subject_id",
        subjects=_names(pl.col("sub_ent"), pl.col("sub_aliases").cast(pl.List(pl.String))),
        objects=_objects(table),
        split=pl.lit(None, pl.String),
    )
    extra = {}
    if columns_of_details := [name for name in facts if name != "type"]:
        details = table.select("pair_id", "relation_id", *columns_of_details, object_id="obj_uris")
        details = details.explode("object_id")
        extra["details"] = pl.concat([empty("details"), details], how="diagonal")
    if "type" in facts and table["type"].is_in(TYPES).any():
        declared = table.filter(pl.col("type") != "")
        extra["object_types"] = declared.select("pair_id", "relation_id", "type")
    return pairs, extra


def _popularity() -> pl.Expr:
    text = pl.col("fact_popularity").cast(pl.String).str.strip_chars()
    return text.cast(pl.Float64, strict=False)


def _subject_column(rows: pl.LazyFrame) -> str:
    schema = rows.collect_schema()
    if "sub_uri" in schema:
        return "sub_uri"
    if "uuid" in schema:
        uuids, height = rows.select(pl.col("uuid").n_unique(), pl.len()).collect().row(0)
        if uuids < height:
            return "uuid"
    return "sub_ent"


def _names(label: pl.Expr, aliases: pl.Expr) -> pl.Expr:
    names = pl.concat_list(label, aliases.fill_null([]))
    return names.list.filter(~_is_blank(pl.element())).list.unique(maintain_order=True)


def _objects(pairs: pl.DataFrame) -> pl.Series:
    """list[struct(object_id, labels)], one list per pair."""
    exploded = (
        pairs.select("place", "obj_uris", "obj_ents")
        .explode("obj_uris", "obj_ents")
        .with_columns(index=pl.int_range(pl.len()).over("place"))
    )
    aliases = pairs.select("place", "obj_aliases")
    if pairs["obj_aliases"].dtype == _NAMES:
        # One list for all objects: which object a name belongs to changes no match, so the first;
        # the label of another object is that object's alone, or it would count twice.
        labels, key = exploded.select("place", obj_aliases="obj_ents"), ["place", "obj_aliases"]
        names = aliases.explode("obj_aliases").join(labels, key, "anti", maintain_order="left")
        names = names.group_by("place", maintain_order=True).agg("obj_aliases")
        aliases = aliases.select("place").join(names, "place", "left", maintain_order="left")
    else:
        aliases = aliases.explode("obj_aliases")
    aliases = aliases.with_columns(index=pl.int_range(pl.len()).over("place"))
    objects_named = exploded.join(aliases, on=["place", "index"], how="left", maintain_order="left")
    all_names = _names(pl.col("obj_ents"), pl.col("obj_aliases"))
    objects = objects_named.select(
        "place", object=pl.struct(object_id="obj_uris", labels=all_names)
    )
    return objects.group_by("place", maintain_order=True).agg("object")["object"]


def rows_from_facts(facts: Facts) -> pl.DataFrame:
    """MyriadLAMA rows of the canonical tables: the inverse of `facts_from_rows`."""
    labels = pl.col("objects").list.eval(pl.element().struct.field("labels"))
    pairs = facts.pairs.select(
        "relation_id",
        sub_uri="subject_id",
        sub_ent=pl.col("subjects").list.first(),
        sub_aliases=pl.col("subjects").list.slice(1),
        obj_uris=pl.col("objects").list.eval(pl.element().struct.field("object_id")),
        obj_ents=labels.list.eval(pl.element().list.first()),
        obj_aliases=labels.list.eval(pl.element().list.slice(1)),
    )
    manual = pl.col("origin") == "manual"
    templates = facts.templates.select("relation_id", template="text", is_manual=manual)
    rows = templates.join(pairs, on="relation_id", maintain_order="left_right")
    uuid = pl.format("{}.{}", "relation_id", "sub_uri").alias("uuid")
    return rows.select(uuid, pl.col("relation_id").alias("rel_uri"), pl.exclude("relation_id"))
