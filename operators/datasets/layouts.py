"""Layouts of MyriadLAMA rows: each is turned into one row per pair and template.

| layout | how it is known |
|---|---|
| one row per pair and template | `template` is a text, `obj_ents` a list |
| one row per pair, templates in a list | `template` is a list; `is_manual` may be one, too |
| the same, manual ones apart | `manual_templates` and `paraphrases` are lists |
| all names of the subject in one list | `sub_ent` is a list: the first is the label |
| all names of each object in one list | `obj_ents` is a list of such lists |
| one row per object | `obj_ents` is a text: a pair's objects are gathered |
| CSV | lists are texts as JSON or Python write them |
| plain: one row per fact and template | relation, template, subject, object; labels are the ids |

A list in a cell is several objects, or all names of a subject, even where other cells have single
texts. In a plain table each row adds its objects to those of its pair.
"""

from collections.abc import Iterable
from typing import Any

import polars as pl

from factsweep.operators.datasets.plain_tables import LIST_TEXT, as_myriadlama, listed, titles_of
from factsweep.operators.errors import InputError

_LISTS = ("template", "is_manual", "sub_ent", "sub_aliases", "obj_uris", "obj_ents", "obj_aliases")
_TEMPLATE_LISTS = ("manual_templates", "paraphrases")
_TRUTHS = dict.fromkeys(("true", "1", "yes"), True) | dict.fromkeys(("false", "0", "no"), False)
_TEXTS = pl.List(pl.String)
_SINGLE_TEXTS = ("rel_uri", "sub_uri", "fact_sample")
_NAME_COLUMNS = tuple(name for name in _LISTS if name not in ("is_manual", "template"))
_IDS = {"sub_aliases": "sub_uri", "obj_aliases": "obj_uris"}
NAMED = tuple(_IDS)
_OBJECT_TEXT = r"^\s*\{\s*['\"}]"


def decoded(rows: pl.LazyFrame) -> pl.LazyFrame:
    """The rows with lists and truth values where CSV has texts, and types for empty columns.

    Raises:
        InputError: a text that begins as a list and is none, a list where one text is needed, or an
            object of JSON; it names the row.
    """
    titles = titles_of(rows)
    rows = _empty_typed(_as_texts(as_myriadlama(rows)))
    schema = rows.collect_schema()
    texts = [n for n in (*_SINGLE_TEXTS, *_LISTS, *_TEMPLATE_LISTS) if schema.get(n) == pl.String]
    for name in (*_SINGLE_TEXTS, *_LISTS):
        if name in titles or schema.get(name) == pl.String:  # other types: `check_columns`
            _check_kind(rows, name, titles.get(name, name))
    if titles and schema["rel_uri"] == pl.String:  # where a slash is no part of a URL
        rows = rows.with_columns(pl.col("rel_uri").str.replace_all("/", " "))
    are_lists = (pl.col(name).str.contains(LIST_TEXT).any() for name in texts)
    holds_list = rows.select(are_lists).collect(engine="streaming")
    lists = [name for name in texts if name in NAMED or holds_list[name].item()]
    truths = [n for n in ("is_manual",) if n in texts and n not in lists]
    if not lists and not truths:
        return rows
    table = rows.collect()
    table = table.with_columns(_lists(table[n], titles.get(n, n)) for n in lists)
    return table.with_columns(_truths(table[n]) for n in truths).lazy()


def is_structured(text: pl.Expr) -> pl.Expr:
    """Whether a text is a list or an object, as JSON or Python write it."""
    return text.str.contains(f"{_OBJECT_TEXT}|{LIST_TEXT}")


def _check_kind(rows: pl.LazyFrame, name: str, title: str) -> None:
    """Refuse objects of JSON, fractions, and lists where one text is needed."""
    dtype = rows.collect_schema().get(name, pl.Null())
    is_single = name in _SINGLE_TEXTS
    if dtype == pl.String:
        text = pl.col(name)
        is_unfit = is_structured(text) if is_single else text.str.contains(_OBJECT_TEXT)
    elif name in (*_SINGLE_TEXTS, *_NAME_COLUMNS) and (
        (is_single and dtype.is_nested()) or _innermost(dtype) not in (pl.String, pl.Null)
    ):
        is_unfit = pl.col(name).is_not_null()
    else:
        return
    unfit = rows.select(name).with_row_index("row").filter(is_unfit).head(1)
    for row, value in unfit.collect(engine="streaming").iter_rows():
        raise InputError(
            f"row {row} (counted from 0): {title} is {str(value)[:80]!r}; write "
            f"{'one text' if is_single else 'a text, or a list of texts'}."
        )


def _innermost(dtype: pl.DataType) -> pl.DataType:
    """The type of the values in a list, or in a list of lists."""
    return _innermost(dtype.inner) if isinstance(dtype, pl.List) else dtype  # type: ignore[arg-type]


def _as_texts(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Texts in place of categories, and of whole numbers, days and truth values among names."""
    casts = []
    for name, dtype in rows.collect_schema().items():
        inner = _innermost(dtype)
        is_exact = inner.is_integer() or inner in (pl.Date, pl.Boolean)
        is_category = inner in (pl.Categorical, pl.Enum)
        if is_category or (is_exact and name in (*_SINGLE_TEXTS, *_NAME_COLUMNS)):
            casts.append(pl.col(name).cast(_with_texts(dtype)))
    return rows.with_columns(casts)


def _with_texts(dtype: pl.DataType) -> pl.DataType:
    """The type with texts in place of its innermost type."""
    return pl.List(_with_texts(dtype.inner)) if isinstance(dtype, pl.List) else pl.String()  # type: ignore[arg-type]


def _empty_typed(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Columns without any value have no type of their own: they become empty lists of names."""
    schema = rows.collect_schema()
    untyped = {n: _typed(schema[n]) for n in _LISTS if n in schema}
    lists = {n: to for n, to in untyped.items() if to != schema[n] != pl.Null}
    texts = [n for n in NAMED if schema.get(n) in (pl.String, pl.Null)]
    said = (pl.col(n).cast(pl.String).str.strip_chars() != "" for n in texts)
    filled = rows.select(each.any() for each in said).collect(engine="streaming")
    return rows.with_columns(
        *(pl.col(name).cast(dtype) for name, dtype in lists.items()),
        *(pl.lit(None, _TEXTS).alias(name) for name in texts if not filled[name].item()),
    )


def _typed(dtype: pl.DataType) -> pl.DataType:
    """The type of names where a column is all empty; else the same."""
    if isinstance(dtype, pl.List):
        return pl.List(_typed(dtype.inner))  # type: ignore[arg-type]
    return pl.String() if dtype == pl.Null else dtype


def as_rows(rows: pl.LazyFrame, *, are_plain: bool = False) -> pl.LazyFrame:
    """One row per pair and template, whichever layout the rows have."""
    rows = _objects_named(_subject_named(_templates_exploded(rows)))
    return _objects_gathered(_objects_exploded(rows) if are_plain else rows)


def _objects_exploded(rows: pl.LazyFrame) -> pl.LazyFrame:
    """A row for each object of a list; other names of all objects go to the first one."""
    schema = rows.collect_schema()
    if schema["obj_ents"] != _TEXTS:
        return rows
    if schema["obj_uris"] == pl.String:
        rows = rows.with_columns(pl.concat_list("obj_uris"))
    by_object = schema.get("obj_aliases") == pl.List(_TEXTS)
    lists = ["obj_ents", "obj_uris", *(["obj_aliases"] if by_object else [])]
    lengths = rows.select("row", *(pl.col(name).list.len().fill_null(0) for name in lists[:2]))
    is_unfit = (pl.col("obj_ents") != pl.col("obj_uris")) | (pl.col("obj_ents") == 0)
    for row, n_objects, _ in lengths.filter(is_unfit).head(1).collect().iter_rows():
        problem = "and object_id differ in length; give each object its id"
        raise InputError(
            f"row {row} (counted from 0): object "
            f"{problem if n_objects else 'is empty; correct or drop the row'}."
        )
    rows = rows.with_row_index("cell").explode(lists)
    if by_object or "obj_aliases" not in schema:
        return rows.drop("cell")
    is_first = pl.int_range(pl.len()).over("cell") == 0
    return rows.with_columns(obj_aliases=pl.when(is_first).then("obj_aliases")).drop("cell")


def _templates_exploded(rows: pl.LazyFrame) -> pl.LazyFrame:
    schema = rows.collect_schema()
    if "template" not in schema and "manual_templates" in schema:
        there = [name for name in _TEMPLATE_LISTS if name in schema]
        texts = [pl.col(name).fill_null([]) for name in there]
        marks = [each.list.eval(pl.lit(value=n == 0)) for n, each in enumerate(texts)]
        joined = rows.with_columns(template=pl.concat_list(texts), is_manual=pl.concat_list(marks))
        return joined.drop(there).explode("template", "is_manual")
    together = [n for n in ("template", "is_manual") if isinstance(schema[n], pl.List)]
    return rows.explode(together) if "template" in together else rows


def _subject_named(rows: pl.LazyFrame) -> pl.LazyFrame:
    schema = rows.collect_schema()
    if schema["sub_ent"] != _TEXTS:
        return rows
    names = pl.col("sub_ent")
    others = names.list.slice(1)
    if "sub_aliases" in schema:
        others = pl.concat_list(others, pl.col("sub_aliases").fill_null([]))
    return rows.with_columns(sub_ent=names.list.first(), sub_aliases=others)


def _objects_named(rows: pl.LazyFrame) -> pl.LazyFrame:
    schema = rows.collect_schema()
    if schema["obj_ents"] != pl.List(_TEXTS):
        return rows
    if "obj_aliases" in schema:
        raise InputError(
            "obj_ents has all names of each object, and there is a column obj_aliases; "
            "drop one of them, or map the labels to obj_ents."
        )
    names = pl.col("obj_ents")
    return rows.with_columns(
        obj_ents=names.list.eval(pl.element().list.first()),
        obj_aliases=names.list.eval(pl.element().list.slice(1)),
    )


def _objects_gathered(rows: pl.LazyFrame) -> pl.LazyFrame:
    schema = rows.collect_schema()
    if schema["obj_ents"] != pl.String:
        return rows
    if "sub_uri" not in schema:
        rows = rows.drop("uuid", strict=False)  # an id of the triple tells no subjects apart
    subject = "sub_uri" if "sub_uri" in schema else "sub_ent"
    # A missing object stays a row of its pair, so that the check of values can name it.
    others = [n for n in ("obj_aliases",) if n in schema]
    objects = (
        rows.select("rel_uri", subject, "obj_uris", "obj_ents", *others)
        .unique(["rel_uri", subject, "obj_uris", "obj_ents"], keep="first", maintain_order=True)
        .group_by("rel_uri", subject, maintain_order=True)
        .agg("obj_uris", "obj_ents", *others)
    )
    return rows.drop("obj_uris", "obj_ents", *others).join(
        objects, on=["rel_uri", subject], how="left", nulls_equal=True, maintain_order="left"
    )


def _lists(column: pl.Series, name: str) -> pl.Series:
    """The lists of a column of texts; a text that is no list is one of a single text."""
    is_list = column.str.contains(LIST_TEXT).to_list()
    takes_texts = column.name not in ("is_manual", *NAMED)
    lists = [
        [text] if takes_texts and text is not None and not is_list[row] else listed(text, name, row)
        for row, text in enumerate(column)
    ]
    if column.name != "is_manual":
        _check_names(lists, name)
    try:
        return pl.Series(column.name, lists)
    except TypeError as error:
        raise InputError(
            f"{name} has lists of numbers in some rows and of truth values in others; write one "
            "kind."
        ) from error


def _check_names(lists: Iterable[list[Any] | None], name: str) -> None:
    """Refuse lists of other values than texts, or lists of texts, in all rows."""
    kinds: dict[str, int] = {}
    for row, values in enumerate(lists):
        for value in values or ():
            is_texts = isinstance(value, list) and all(isinstance(text, str) for text in value)
            if not (isinstance(value, str) or is_texts):
                raise InputError(
                    f"row {row} (counted from 0): {name} has {value!r} in a list of names; write "
                    "texts in quotation marks."
                )
            kinds.setdefault("a list in a list" if is_texts else "a text in a list", row)
    if len(kinds) > 1:
        (first, _), (kind, row) = kinds.items()
        raise InputError(
            f"row {row} (counted from 0): {name} has {kind}, and {first} in an earlier row; write "
            "one of them in all rows."
        )


def _truths(column: pl.Series) -> pl.Series:
    texts = column.str.strip_chars().str.to_lowercase()
    unknown = texts.filter(texts.is_not_null() & ~texts.is_in(list(_TRUTHS)))
    if not unknown.is_empty():
        raise InputError(f"{column.name} is {unknown[0]!r}; write true or false.")
    return texts.replace_strict(_TRUTHS, return_dtype=pl.Boolean)


def with_aliases(rows: pl.LazyFrame, column: str, labels: pl.DataFrame) -> pl.LazyFrame:
    """The rows with the column `sub_aliases` or `obj_aliases`, from names by id.

    `labels` has the columns `entity_id` and `labels` (list[str]). An id may be the end of a URL. An
    entity that is missing there has no other names.

    Raises:
        InputError: the rows have no ids.

    >>> labels = pl.DataFrame({"entity_id": ["Q142"], "labels": [["France", "Gaul"]]})
    >>> rows = pl.LazyFrame({"sub_uri": ["Q142", "Q38"]})
    >>> with_aliases(rows, "sub_aliases", labels).collect()["sub_aliases"].to_list()
    [['France', 'Gaul'], None]
    """
    ids = _IDS[column]
    rows = decoded(rows)
    schema = rows.collect_schema()
    if ids not in schema:
        raise InputError(f"{column} come from another file by id, and there is no column {ids}.")
    rows = rows.drop(column, strict=False)
    names = labels.lazy().unique("entity_id", keep="first", maintain_order=True)
    names = names.select(id="entity_id", names="labels")
    single = schema[ids] == pl.String
    numbered = rows.with_row_index("at")
    each = numbered.select("at", id=ids) if single else numbered.select("at", id=ids).explode("id")
    lists = each.with_columns(pl.col("id").str.split("/").list.last())
    lists = lists.join(names, on="id", how="left", maintain_order="left")
    lists = lists.group_by("at", maintain_order=True).agg(
        (pl.col("names").first() if single else pl.col("names")).alias(column)
    )
    return numbered.join(lists, on="at", how="left", maintain_order="left").drop("at")
