"""Layouts of MyriadLAMA rows (docs/data.md): each is turned into one row per pair and template."""

import polars as pl

from factsweep.operators.datasets.plain_tables import (
    LIST_TEXT,
    as_myriadlama,
    parse_list,
    titles_of,
)
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import refuse

_LISTS = ("template", "is_manual", "sub_ent", "sub_aliases", "obj_uris", "obj_ents", "obj_aliases")
_TEMPLATE_LISTS = ("manual_templates", "paraphrases")
_TRUTHS = dict.fromkeys(("true", "1", "yes"), True) | dict.fromkeys(("false", "0", "no"), False)
_TEXTS = pl.List(pl.String)
_SINGLE_TEXTS = ("rel_uri", "sub_uri", "fact_sample")
_NAME_COLUMNS = tuple(name for name in _LISTS if name not in ("is_manual", "template"))
_IDS = {"sub_aliases": "sub_uri", "obj_aliases": "obj_uris"}
NAMED = tuple(_IDS)
_OBJECT_TEXT = r"^\s*\{\s*['\"}]"


def decode_cells(rows: pl.LazyFrame) -> pl.LazyFrame:
    """The rows with lists and truth values where CSV has texts, and types for empty columns.

    Raises:
        InputError: a text that begins as a list and is none, a list where one text is needed, or an
            object of JSON; it names the row.
    """
    titles = titles_of(rows)
    rows = _cast_to_texts(as_myriadlama(rows))
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
    if lists:
        table = rows.collect()
        rows = table.with_columns(_lists(table[n], titles.get(n, n)) for n in lists).lazy()
    if "is_manual" not in texts or "is_manual" in lists:
        return rows
    marks = pl.col("is_manual").str.strip_chars().str.to_lowercase()
    unknown = "row {row} (counted from 0): is_manual is {is_manual!r}; write true or false."
    problems = {unknown: marks.is_not_null() & ~marks.is_in(list(_TRUTHS))}
    refuse(rows.select("is_manual").with_row_index("row"), problems, ["row", "is_manual"])
    return rows.with_columns(is_manual=marks.replace_strict(_TRUTHS, return_dtype=pl.Boolean))


def _cast_to_texts(rows: pl.LazyFrame) -> pl.LazyFrame:
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
    lists, kinds = [], dict[str, int]()
    for row, text in enumerate(column):
        is_single = takes_texts and text is not None and not is_list[row]
        lists.append([text] if is_single else parse_list(text, name, row))
        for value in () if column.name == "is_manual" else lists[-1] or ():
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
    try:
        series = pl.Series(column.name, lists)
    except TypeError as error:
        raise InputError(
            f"{name} has lists of numbers in some rows and of truth values in others; write one "
            "kind."
        ) from error
    return series.cast(_TEXTS) if _innermost(series.dtype) == pl.Null else series


def as_rows(rows: pl.LazyFrame, *, are_plain: bool = False) -> pl.LazyFrame:
    """One row per pair and template, whichever layout the rows have."""
    schema = rows.collect_schema()
    if "template" not in schema and "manual_templates" in schema:
        columns = [name for name in _TEMPLATE_LISTS if name in schema]
        texts = [pl.col(name).fill_null([]) for name in columns]
        marks = [text.list.eval(pl.lit(value=n == 0)) for n, text in enumerate(texts)]
        rows = rows.with_columns(template=pl.concat_list(texts), is_manual=pl.concat_list(marks))
        rows = rows.drop(columns).explode("template", "is_manual")
    elif isinstance(schema["template"], pl.List):
        marked = isinstance(schema["is_manual"], pl.List)
        rows = rows.explode("template", *(["is_manual"] if marked else []))
    if schema["sub_ent"] == _TEXTS:
        aliases = pl.col("sub_ent").list.slice(1)
        if "sub_aliases" in schema:
            aliases = pl.concat_list(aliases, pl.col("sub_aliases").fill_null([]))
        rows = rows.with_columns(sub_ent=pl.col("sub_ent").list.first(), sub_aliases=aliases)
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
        rows = rows.drop("uuid", strict=False)  # an id of the triple does not identify a subject
    subject = "sub_uri" if "sub_uri" in schema else "sub_ent"
    # A missing object stays a row of its pair, so that the check of values can name it.
    columns = [name for name in ("obj_uris", "obj_ents", "obj_aliases") if name in schema]
    pair = ["rel_uri", subject]
    objects = (
        rows.select(*pair, *columns)
        .unique([*pair, *columns[:2]], keep="first", maintain_order=True)
        .group_by(pair, maintain_order=True)
        .agg(columns)
    )
    rows = rows.drop(columns)
    return rows.join(objects, on=pair, how="left", nulls_equal=True, maintain_order="left")


def join_aliases(rows: pl.LazyFrame, column: str, labels: pl.DataFrame) -> pl.LazyFrame:
    """The rows with the column `sub_aliases` or `obj_aliases`, from names by id.

    `labels` has the columns `entity_id` and `labels` (list[str]). An id may be the end of a URL. An
    entity that is missing there has no other names.

    Raises:
        InputError: the rows have no ids.

    >>> labels = pl.DataFrame({"entity_id": ["Q142"], "labels": [["France", "Gaul"]]})
    >>> rows = pl.LazyFrame({"sub_uri": ["Q142", "Q38"]})
    >>> join_aliases(rows, "sub_aliases", labels).collect()["sub_aliases"].to_list()
    [['France', 'Gaul'], None]
    """
    ids = _IDS[column]
    rows = decode_cells(rows)
    schema = rows.collect_schema()
    if ids not in schema:
        raise InputError(f"{column} come from another file by id, and there is no column {ids}.")
    names = labels.lazy().unique("entity_id", keep="first", maintain_order=True)
    names = names.select(id="entity_id", names="labels")
    is_single = schema[ids] == pl.String
    numbered = rows.drop(column, strict=False).with_row_index("at")
    entities = numbered.select("at", id=ids)
    entities = entities if is_single else entities.explode("id")
    entities = entities.with_columns(pl.col("id").str.split("/").list.last())
    lists = entities.join(names, on="id", how="left", maintain_order="left")
    aliases = pl.col("names").first() if is_single else pl.col("names")
    lists = lists.group_by("at", maintain_order=True).agg(aliases.alias(column))
    return numbered.join(lists, on="at", how="left", maintain_order="left").drop("at")
