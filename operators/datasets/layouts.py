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
    rows = _typed(as_myriadlama(rows))
    schema = rows.collect_schema()
    texts = [n for n in (*_SINGLE_TEXTS, *_LISTS, *_TEMPLATE_LISTS) if schema.get(n) == pl.String]
    for name in (*_SINGLE_TEXTS, *_LISTS):
        if name in titles or name in texts:  # other types: `check_columns`
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


def _typed(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Texts in place of categories, and of whole numbers, days and truth values among names.

    Lists without any value become lists of names, and so do other names that are all missing.
    """
    casts = []
    for name, dtype in rows.collect_schema().items():
        inner = _innermost(dtype)
        is_exact = inner.is_integer() or inner in (pl.Date, pl.Boolean)
        if dtype == pl.Null and name in NAMED:
            casts.append(pl.lit(None, _TEXTS).alias(name))
        elif (
            inner in (pl.Categorical, pl.Enum)
            or (is_exact and name in (*_SINGLE_TEXTS, *_NAME_COLUMNS))
            or (inner == pl.Null != dtype and name in _LISTS)
        ):
            casts.append(pl.col(name).cast(_with_texts(dtype)))
    return rows.with_columns(casts)


def _innermost(dtype: pl.DataType) -> pl.DataType:
    """The type of the values in a list, or in a list of lists."""
    return _innermost(dtype.inner) if isinstance(dtype, pl.List) else dtype  # type: ignore[arg-type]


def _with_texts(dtype: pl.DataType) -> pl.DataType:
    return pl.List(_with_texts(dtype.inner)) if isinstance(dtype, pl.List) else pl.String()  # type: ignore[arg-type]


def is_structured(text: pl.Expr) -> pl.Expr:
    """Whether a text is a list or an object, as JSON or Python write it."""
    return text.str.contains(f"{_OBJECT_TEXT}|{LIST_TEXT}")


def _check_kind(rows: pl.LazyFrame, name: str, title: str) -> None:
    """Refuse objects of JSON, fractions, and lists where one text is needed."""
    dtype, text = rows.collect_schema().get(name, pl.Null()), pl.col(name)
    is_single = name in _SINGLE_TEXTS
    is_unfit = text.is_not_null()
    if dtype == pl.String:
        is_unfit = is_structured(text) if is_single else text.str.contains(_OBJECT_TEXT)
    elif name not in (*_SINGLE_TEXTS, *_NAME_COLUMNS) or (
        not (is_single and dtype.is_nested()) and _innermost(dtype) in (pl.String, pl.Null)
    ):
        return
    unfit = rows.select(name).with_row_index("row").filter(is_unfit).head(1)
    for row, value in unfit.collect(engine="streaming").iter_rows():
        raise InputError(
            f"row {row} (counted from 0): {title} is {str(value)[:80]!r}; write "
            f"{'one text' if is_single else 'a text, or a list of texts'}."
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
        series = pl.Series(column.name, lists)
    except TypeError as error:
        raise InputError(
            f"{name} has lists of numbers in some rows and of truth values in others; write one "
            "kind."
        ) from error
    return series.cast(_TEXTS) if _innermost(series.dtype) == pl.Null else series


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


def as_rows(rows: pl.LazyFrame, *, are_plain: bool = False) -> pl.LazyFrame:
    """One row per pair and template, whichever layout the rows have."""
    schema = rows.collect_schema()
    if "template" not in schema and "manual_templates" in schema:
        columns = [name for name in _TEMPLATE_LISTS if name in schema]
        texts = [pl.col(name).fill_null([]) for name in columns]
        marks = [each.list.eval(pl.lit(value=n == 0)) for n, each in enumerate(texts)]
        rows = rows.with_columns(template=pl.concat_list(texts), is_manual=pl.concat_list(marks))
        rows = rows.drop(columns).explode("template", "is_manual")
    elif isinstance(schema["template"], pl.List):
        marked = isinstance(schema["is_manual"], pl.List)
        rows = rows.explode("template", *(["is_manual"] if marked else []))
    names = pl.col("sub_ent")
    if schema["sub_ent"] == _TEXTS:
        others = names.list.slice(1)
        if "sub_aliases" in schema:
            others = pl.concat_list(others, pl.col("sub_aliases").fill_null([]))
        rows = rows.with_columns(sub_ent=names.list.first(), sub_aliases=others)
    names = pl.col("obj_ents")
    if schema["obj_ents"] == pl.List(_TEXTS):
        if "obj_aliases" in schema:
            raise InputError(
                "obj_ents has all names of each object, and there is a column obj_aliases; "
                "drop one of them, or map the labels to obj_ents."
            )
        rows = rows.with_columns(
            obj_ents=names.list.eval(pl.element().list.first()),
            obj_aliases=names.list.eval(pl.element().list.slice(1)),
        )
    if are_plain and rows.collect_schema()["obj_ents"] == _TEXTS:
        rows = _objects_exploded(rows)
    return _objects_gathered(rows) if rows.collect_schema()["obj_ents"] == pl.String else rows


def _objects_exploded(rows: pl.LazyFrame) -> pl.LazyFrame:
    """A row for each object of a list; other names of all objects go to the first one."""
    schema = rows.collect_schema()
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
    if not by_object and "obj_aliases" in schema:
        is_first = pl.int_range(pl.len()).over("cell") == 0
        rows = rows.with_columns(obj_aliases=pl.when(is_first).then("obj_aliases"))
    return rows.drop("cell")


def _objects_gathered(rows: pl.LazyFrame) -> pl.LazyFrame:
    schema = rows.collect_schema()
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
    names = labels.lazy().unique("entity_id", keep="first", maintain_order=True)
    names = names.select(id="entity_id", names="labels")
    single = schema[ids] == pl.String
    numbered = rows.drop(column, strict=False).with_row_index("at")
    each = numbered.select("at", id=ids)
    each = (each if single else each.explode("id")).with_columns(
        pl.col("id").str.split("/").list.last()
    )
    lists = each.join(names, on="id", how="left", maintain_order="left")
    lists = lists.group_by("at", maintain_order=True).agg(
        (pl.col("names").first() if single else pl.col("names")).alias(column)
    )
    return numbered.join(lists, on="at", how="left", maintain_order="left").drop("at")
