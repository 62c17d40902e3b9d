"""MyriadLAMA: rows as its authors publish them → the canonical tables, and back.

A row is a subject-relation pair under one template (MyriadLAMA, section 4). Columns:

| column | type | meaning |
|---|---|---|
| rel_uri | str | relation, `P36` or its Wikidata URL |
| template | str | text with [X] and [Y] |
| is_manual | bool | written by hand, or a paraphrase of the last manual template before it |
| sub_ent | str | the subject's label |
| sub_uri, sub_aliases | str, list[str] | the subject's id and other names; both may be missing |
| obj_uris, obj_ents | list[str] | the ids and labels of all right objects |
| obj_aliases | list[list[str]] or list[str] | other names, one list an object, or one for all |
| uuid | str | id of the pair or of the row; names the subject where there is no sub_uri |
"""

from collections.abc import Mapping

import polars as pl

from operators.datasets.facts import Facts, checked
from operators.datasets.templates import numbered
from operators.errors import InputError

_TEXT = ("rel_uri", "template", "sub_ent")
_LISTS = ("obj_uris", "obj_ents")
_TYPES: Mapping[str, tuple[pl.DataType, ...]] = {
    **{name: (pl.String(),) for name in (*_TEXT, "sub_uri", "uuid")},
    **{name: (pl.List(pl.String),) for name in (*_LISTS, "sub_aliases")},
    "is_manual": (pl.Boolean(), pl.Int64()),
    "obj_aliases": (pl.List(pl.List(pl.String)), pl.List(pl.String)),
}
_REQUIRED = (*_TEXT, "is_manual", *_LISTS, "obj_aliases")


def facts_from_rows(rows: pl.LazyFrame, relation_labels: Mapping[str, str] | None = None) -> Facts:
    """The canonical tables of MyriadLAMA rows.

    `relation_labels` names all relations that may stand in the rows, by id; without it every
    relation is taken and its label is its id.

    Raises:
        InputError: a missing column, a wrong type, an empty value, or what `checked` refuses.
    """
    schema = rows.collect_schema()
    _check_columns(schema)
    rows = (
        rows.select(name for name in schema if name in _TYPES)
        .with_row_index("row")
        .with_columns(
            relation_id=pl.col("rel_uri").str.split("/").list.last(),
            is_manual=pl.col("is_manual").cast(pl.Boolean),
        )
    )
    subject = _subject_column(rows)
    _check_values(rows, subject, relation_labels)
    templates = _templates(rows)
    relations = templates.select(pl.col("relation_id").unique(maintain_order=True))
    labels = pl.DataFrame(
        list((relation_labels or {}).items()),
        schema={"relation_id": pl.String, "label": pl.String},
        orient="row",
    )
    relations = relations.join(labels, on="relation_id", how="left", maintain_order="left")
    relations = relations.with_columns(pl.col("label").fill_null(pl.col("relation_id")))
    return checked(Facts(relations, templates, _pairs(rows, subject)))


def _check_columns(schema: pl.Schema) -> None:
    for name in _REQUIRED:
        if name not in schema:
            raise InputError(
                f"column {name} is missing; MyriadLAMA rows have {', '.join(_REQUIRED)}."
            )
    for name, types in _TYPES.items():
        if name in schema and schema[name] not in types:
            expected = " or ".join(map(str, types))
            raise InputError(f"column {name} has type {schema[name]}; it must be {expected}.")


def _check_values(
    rows: pl.LazyFrame, subject: str, relation_labels: Mapping[str, str] | None
) -> None:
    problems = {f"{name} is empty": _blank(pl.col(name)) for name in (*_TEXT, subject)}
    problems["rel_uri names no relation"] = _blank(pl.col("relation_id"))
    problems["is_manual is empty"] = pl.col("is_manual").is_null()
    labels, uris = pl.col("obj_ents"), pl.col("obj_uris")
    problems["obj_ents is empty"] = labels.list.len().fill_null(0) == 0
    problems["obj_ents has an empty label"] = labels.list.eval(_blank(pl.element())).list.any()
    problems["obj_uris and obj_ents differ in length"] = (
        uris.list.len().fill_null(0) != labels.list.len()
    )
    if relation_labels is not None:
        unknown = ~pl.col("relation_id").is_in(list(relation_labels))
        problems["the catalog entry does not name its relation"] = unknown
    found = rows.select(
        pl.col("row").filter(wrong).first().alias(name) for name, wrong in problems.items()
    ).collect(engine="streaming")
    for name, row in found.row(0, named=True).items():
        if row is not None:
            raise InputError(f"row {row} (counted from 0): {name}; correct or drop the row.")


def _blank(text: pl.Expr) -> pl.Expr:
    return text.fill_null("").str.strip_chars() == ""


def _templates(rows: pl.LazyFrame) -> pl.DataFrame:
    """One row a template, in the order of first appearance in its relation."""
    template = (
        rows.group_by("relation_id", "template")
        .agg(pl.col("row").min(), pl.col("is_manual").first())
        .collect(engine="streaming")
        .sort("row")
    )
    # Each paraphrase follows its manual template; where the groups come out unequal, the file has
    # another order, and which paraphrase belongs to which manual template is not known.
    group = (pl.col("is_manual").cum_sum().over("relation_id").cast(pl.Int64) - 1).cast(
        pl.UInt16, strict=False
    )
    template = template.with_columns(group=group)
    sizes = template.group_by("relation_id", "group").len()
    led = pl.col("group").is_not_null().all()
    equal = sizes.group_by("relation_id").agg(known=(pl.col("len").n_unique() == 1) & led)
    texts = template.join(equal, on="relation_id", maintain_order="left").select(
        relation_id="relation_id",
        text="template",
        origin=pl.when("is_manual").then(pl.lit("manual")).otherwise(pl.lit("paraphrase")),
        group=pl.when("known").then("group"),
    )
    return numbered(texts)


def _pairs(rows: pl.LazyFrame, subject: str) -> pl.DataFrame:
    """One row a subject-relation pair, in the order of first appearance."""
    schema = rows.collect_schema()
    columns = [pl.col(name).first() for name in ("sub_ent", "obj_uris", "obj_ents", "obj_aliases")]
    aliases = (
        pl.col("sub_aliases").first()
        if "sub_aliases" in schema
        else pl.lit(None).alias("sub_aliases")
    )
    pairs = (
        rows.group_by("relation_id", pl.col(subject).alias("subject_id"))
        .agg(pl.col("row").min(), *columns, aliases)
        .collect(engine="streaming")
        .sort("row")
    )
    return pairs.select(
        pair_id=pl.format("{}.{}", "relation_id", "subject_id"),
        relation_id="relation_id",
        subject_id="subject_id",
        subjects=_names(pl.col("sub_ent"), pl.col("sub_aliases").cast(pl.List(pl.String))),
        objects=_objects(pairs),
        split=pl.lit(None, pl.String),
    )


def _subject_column(rows: pl.LazyFrame) -> str:
    """Which column tells two subjects of a relation apart."""
    schema = rows.collect_schema()
    if "sub_uri" in schema:
        return "sub_uri"
    if "uuid" in schema:
        uuids, height = rows.select(pl.col("uuid").n_unique(), pl.len()).collect().row(0)
        if uuids < height:
            return "uuid"
    return "sub_ent"


def _names(label: pl.Expr, aliases: pl.Expr) -> pl.Expr:
    """The label first, then the aliases, each name once."""
    names = pl.concat_list(label, aliases.fill_null([]))
    return names.list.filter(~_blank(pl.element())).list.unique(maintain_order=True)


def _objects(pairs: pl.DataFrame) -> pl.Series:
    """list[struct(object_id, labels)], one list a pair."""
    flat = pairs["obj_aliases"].dtype == pl.List(pl.String)
    exploded = (
        pairs.select("row", "obj_uris", "obj_ents")
        .explode("obj_uris", "obj_ents")
        .with_columns(index=pl.int_range(pl.len()).over("row"))
    )
    aliases = pairs.select("row", "obj_aliases")
    # One list for all objects: which object a name belongs to changes no match, so the first.
    if not flat:
        aliases = aliases.explode("obj_aliases")
    aliases = aliases.with_columns(index=pl.int_range(pl.len()).over("row"))
    objects = exploded.join(aliases, on=["row", "index"], how="left", maintain_order="left").select(
        "row",
        object=pl.struct(
            object_id="obj_uris", labels=_names(pl.col("obj_ents"), pl.col("obj_aliases"))
        ),
    )
    return objects.group_by("row", maintain_order=True).agg("object")["object"]


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
    templates = facts.templates.select(
        "relation_id", template="text", is_manual=pl.col("origin") == "manual"
    )
    rows = templates.join(pairs, on="relation_id", maintain_order="left_right")
    return rows.select(
        pl.format("{}.{}", "relation_id", "sub_uri").alias("uuid"),
        pl.col("relation_id").alias("rel_uri"),
        pl.exclude("relation_id"),
    )
