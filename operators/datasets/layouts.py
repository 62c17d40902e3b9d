"""Layouts of rows (docs/data.md): names of columns, cells of several answers, a row per object.

A plain table of facts has the columns relation, template, subject and object; MyriadLAMA's rows
have names of their own.
"""

import ast
import io
import json
import re
import tokenize
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.schemas import refuse
from factsweep.operators.wording import count

# The names of the plain layout's columns in the others.
_PLAIN = {"relation": "rel_uri", "template": "template", "subject": "sub_ent", "object": "obj_ents"}
# Other names of the columns of a plain table of four, in any case.
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
_OBJECT_IDS = {"object": "object_id", "obj_ents": "obj_uris"}
_ALIASES = ("object_aliases", "subject_aliases", "obj_aliases", "sub_aliases")
_SIGN = re.compile(r"(?<=[^\s;|])\s*([;|；]|(?<=\s)/(?=\s))\s*(?=[^\s;|])")
_SHOWN = 3
_TEXTS = pl.List(pl.String)
# A list as a text: how it begins, how it ends without a beginning, or numbers and truth values. A
# template may begin with [X], and a name with [6].
LIST_TEXT = (
    r"^\s*\[\s*['\"\[\]]|^[^\[]*['\"]\s*\]\s*$|"
    r"^\s*\[(?:[\s,]|-?\d[\d.]*|[Tt]rue|[Ff]alse|null|None)*\]?\s*$"
)
_LISTS = ("sub_aliases", "obj_uris", "obj_ents", "obj_aliases")
_TRUTHS = dict.fromkeys(("true", "1", "yes"), True) | dict.fromkeys(("false", "0", "no"), False)
_SINGLE_TEXTS = ("rel_uri", "template", "sub_uri", "sub_ent", "fact_sample")
_IDS = {"sub_aliases": "sub_uri", "obj_aliases": "obj_uris"}
NAMED = tuple(_IDS)
_OBJECT_TEXT = r"^\s*\{\s*['\"}]"


def match_columns(columns: Collection[str]) -> dict[str, str]:
    """Which columns of a plain table have another name; none where it is no such table.

    Each of its columns may have capitals, and blanks around its name. A table of four columns may
    have other names for them.

    >>> match_columns(["Rel", "template", "head", "tail"])
    {'Rel': 'relation', 'head': 'subject', 'tail': 'object'}
    >>> match_columns(["rel", "template", "head", "x"])
    {}
    >>> match_columns(["relation", "template", " subject", "Object", "Type", "note"])
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
    names = {alias: name for name, aliases in MEANT.items() for alias in (name, *aliases)}
    name_by_column = {column: names.get(column.strip().casefold()) for column in columns}
    if len(name_by_column) != len(MEANT) or {*name_by_column.values()} != {*MEANT}:
        return {}
    return {column: name for column, name in name_by_column.items() if name and name != column}


def guess_columns(columns: Collection[str], names: Collection[str]) -> dict[str, str]:
    """The columns that stand for names that a table lacks, by their names in the table.

    >>> guess_columns(["Relation", " head", "note", "date"], ["relation", "subject", "date"])
    {'Relation': 'relation', ' head': 'subject'}
    >>> guess_columns(["head", "sub"], ["subject"])
    {}
    """
    name_by_column = {}
    for name in names:
        aliases = (name, *MEANT.get(name, ()))
        matches = [column for column in columns if column.strip().casefold() in aliases]
        if name not in columns and len(matches) == 1:
            name_by_column[matches[0]] = name
    return name_by_column


def is_plain(rows: pl.LazyFrame) -> bool:
    """Whether the rows are those of a plain table of facts."""
    names = rows.collect_schema().names()
    return {*_PLAIN} <= {match_columns(names).get(name, name) for name in names}


def titles_of(rows: pl.LazyFrame) -> dict[str, str]:
    """The names that columns have in a plain table, by those of MyriadLAMA rows."""
    titles = {name: plain for plain, name in {**_PLAIN, **PLAIN_MORE}.items()}
    if "object_id" not in rows.collect_schema():
        titles["obj_uris"] = "object"
    return titles if is_plain(rows) else {}


def as_myriadlama(rows: pl.LazyFrame) -> pl.LazyFrame:
    """A plain table with the names of the others; an object without an id has its label."""
    rows = rows.rename(match_columns(rows.collect_schema().names()))
    schema = rows.collect_schema()
    if {*_PLAIN} - {*schema} or {*_PLAIN.values()} & {*schema} - {"template"}:
        if {*_PLAIN} - {*schema} == {"template"} and "rel_uri" not in schema:
            raise InputError(
                "column template is missing; add it, or have `factsweep build facts FILE` write "
                "templates, and a benchmark with them."
            )
        return rows
    names = _PLAIN | {old: new for old, new in PLAIN_MORE.items() if old in schema}
    texts = [name for name in names if schema[name] == pl.String]
    rows = rows.with_columns(pl.col(texts).str.strip_chars()).rename(names)
    if "object_id" not in schema:
        rows = rows.with_columns(obj_uris="obj_ents")
    return rows if "is_manual" in schema else rows.with_columns(is_manual=pl.lit(value=True))


def split_cells(rows: pl.DataFrame, separator: str) -> pl.DataFrame:
    """The rows with one object each, and lists of aliases, where a cell has several.

    Raises:
        InputError: a row has another number of objects than of their ids.

    >>> split_cells(pl.DataFrame({"relation": "capital", "object": "Sucre; La Paz"}), ";").rows()
    [('capital', 'Sucre'), ('capital', 'La Paz')]
    """
    rows = rows.rename(match_columns(rows.columns))
    for objects, ids in _OBJECT_IDS.items():
        if rows.schema.get(objects) == pl.String:
            names = [name for name in (objects, ids) if rows.schema.get(name) == pl.String]
            cells = [[_parts(cell, separator) for cell in rows[name]] for name in names]
            for row, parts in enumerate(zip(*cells, strict=True)):
                if len({*map(len, parts)}) > 1:
                    raise InputError(
                        f"row {row} (counted from 0): {objects} has {count(len(parts[0]), 'part')} "
                        f"and {ids} {len(parts[1])}; give each object its id."
                    )
            columns = pl.DataFrame(
                dict(zip(names, cells, strict=True)), dict.fromkeys(names, _TEXTS)
            )
            rows = rows.with_columns(columns).explode(names)
    for name in (name for name in _ALIASES if rows.schema.get(name) == pl.String):
        lists = [
            parse_list(cell, name, row)
            if is_list_text(cell)
            else [*filter(None, _parts(cell, separator))]
            for row, cell in enumerate(rows[name])
        ]
        rows = rows.with_columns(pl.Series(name, lists, _TEXTS))
    return rows


def warn_of_joined_cells(rows: pl.LazyFrame, option: str, separator: str | None) -> list[str]:
    """A warning about cells that seem to hold several answers; `option` splits them.

    Cells that the `separator` splits are left out.

    >>> rows = pl.LazyFrame({"object": ["Lima", "Sucre|La Paz"]})
    >>> warn_of_joined_cells(rows, "--separator ", None)
    ["1 cell seems to hold several answers (row 1: object 'Sucre|La Paz'), and is one answer as it \
stands; --separator '|' splits such cells."]
    """
    rows = rows.rename(match_columns(rows.collect_schema().names()))
    joined = find_joined_cells(rows, (*_OBJECT_IDS, *_ALIASES), separator)
    mark = {"/": " / "}.get(joined[0].sign, joined[0].sign) if joined else ""
    return describe_joined_cells(joined, f"{option}{mark!r} splits such cells")


class JoinedCell(NamedTuple):
    """A cell that seems to hold several texts, and the sign between them."""

    row: int
    column: str
    cell: str
    sign: str

    @property
    def as_list(self) -> str:
        """The texts as a list of JSON."""
        return json.dumps(_parts(self.cell, self.sign), ensure_ascii=False)


def find_joined_cells(
    rows: pl.LazyFrame, columns: Iterable[str], separator: str | None = None
) -> list[JoinedCell]:
    """The cells of columns of texts that seem to hold several; each text once."""
    schema = rows.collect_schema()
    names = [name for name in columns if schema.get(name) == pl.String]
    if not names:
        return []
    cells = rows.select(names).with_row_index("row").unpivot(names, index="row").drop_nulls("value")
    cells = cells.filter(pl.col("value").str.contains("[;|；]| / "))
    cells = cells.unique(["variable", "value"], keep="first", maintain_order=True).sort("row")
    return [
        JoinedCell(row, name, cell, sign[1])
        for row, name, cell in cells.collect().iter_rows()
        if (sign := _SIGN.search(cell)) and not is_list_text(cell)
        if separator is None or separator not in cell
    ]


def describe_joined_cells(
    joined: Sequence[JoinedCell], fix: str, noun: str = "answer"
) -> list[str]:
    """A sentence on such cells, the first of them named; none where there are none."""
    if not joined:
        return []
    first = ", ".join(f"row {c.row}: {c.column} {c.cell[:80]!r}" for c in joined[:_SHOWN])
    seem, are = ("seems", "is") if len(joined) == 1 else ("seem", "each is")
    return [
        f"{count(len(joined), 'cell')} {seem} to hold several {noun}s ({first}), and {are} one "
        f"{noun} as it stands; {fix}."
    ]


def check_aliases(rows: pl.LazyFrame, option: str) -> None:
    """Refuse aliases that are written as no list, with the list that they may be.

    Raises:
        InputError: it names the row and what to write.
    """
    schema = rows.collect_schema()
    for name in (name for name in _ALIASES if schema.get(name) == pl.String):
        text = pl.col(name)
        is_unfit = (text.str.strip_chars() != "") & ~text.str.contains(r"^\s*\[")
        cells = rows.select(name).with_row_index("row").filter(is_unfit)
        for row, cell in cells.head(1).collect().iter_rows():
            sign = _SIGN.search(cell)
            parts = _parts(cell, sign[1]) if sign else [cell]
            splits = f"split such cells with {option}{sign[1]!r}, or " if sign else ""
            raise InputError(
                f"row {row} (counted from 0): {name} is {cell[:80]!r}, no list; {splits}write "
                f"{json.dumps(parts, ensure_ascii=False)}."
            )


def _parts(cell: str | None, separator: str) -> list[str | None]:
    """The texts between separators; the cell itself where it has none."""
    parts = [part.strip() for part in (cell or "").split(separator)]
    return [*filter(None, parts)] or [cell]


def is_list_text(text: str | None) -> bool:
    """Whether a text begins as a list that is written as one."""
    return re.match(LIST_TEXT, text or "") is not None


def parse_list(text: str | None, name: str, row: int) -> list[Any] | None:
    """A list that is written as a text; null where there is nothing.

    Raises:
        InputError: it is no list.
    """
    if text is None or not text.strip():
        return None
    for parse in (json.loads, ast.literal_eval):
        try:
            values = parse(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(values, list) and (parse is json.loads or not _joins_texts(text)):
            return values
    names = [part.strip(" \t'\"") for part in re.split("[,;|；]", text.strip()[1:-1])]
    is_flat = all(names) and not re.search(r"[\[\]{}\\]", text.strip()[1:-1])
    fix = f"write {json.dumps(names, ensure_ascii=False)}" if is_flat else "correct it"
    raise InputError(
        f"row {row} (counted from 0): {name} is {text[:80]!r}, no list as JSON or Python write it; "
        f"{fix}."
    )


def _joins_texts(text: str) -> bool:
    """Whether Python joined neighbours that no comma parts: `['a' 'b']`, as NumPy prints a list."""
    if not re.search(r"""['"]\s+['"]""", text):  # few texts have it, and tokens are slow
        return False
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    kinds = [token.type for token in tokens if token.type != tokenize.NL]
    return any(pair == (tokenize.STRING, tokenize.STRING) for pair in pairwise(kinds))


def decode_cells(rows: pl.LazyFrame) -> pl.LazyFrame:
    """The rows with lists and truth values where CSV has texts, and types for empty columns.

    Raises:
        InputError: a text that begins as a list and is none, a list where one text is needed, or an
            object of JSON; it names the row.
    """
    titles = titles_of(rows)
    rows = _cast_to_texts(as_myriadlama(rows))
    schema = rows.collect_schema()
    texts = [name for name in _LISTS if schema.get(name) == pl.String]
    for name in (*_SINGLE_TEXTS, *_LISTS):
        if name in titles or schema.get(name) == pl.String:  # other types: `check_columns`
            _check_kind(rows, name, titles.get(name, name))
    if titles and schema["rel_uri"] == pl.String:  # where a slash is no part of a URL
        rows = rows.with_columns(pl.col("rel_uri").str.replace_all("/", " "))
    are_lists = (pl.col(name).str.contains(LIST_TEXT).any() for name in texts)
    holds_list = rows.select(are_lists).collect(engine="streaming")
    lists = [name for name in texts if name in NAMED or holds_list[name].item()]
    if lists:
        table = rows.collect()
        rows = table.with_columns(_lists(table[n], titles.get(n, n)) for n in lists).lazy()
    if schema.get("is_manual") != pl.String:
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
            or (is_exact and name in (*_SINGLE_TEXTS, *_LISTS))
            or (inner == pl.Null != dtype and name in _LISTS)
        ):
            casts.append(pl.col(name).cast(_with_texts(dtype)))
    return rows.with_columns(casts)


def _innermost(dtype: pl.DataType) -> pl.DataType:
    return _innermost(dtype.inner) if isinstance(dtype, pl.List) else dtype  # type: ignore[arg-type]


def _with_texts(dtype: pl.DataType) -> pl.DataType:
    return pl.List(_with_texts(dtype.inner)) if isinstance(dtype, pl.List) else pl.String()  # type: ignore[arg-type]


def is_structured(text: pl.Expr) -> pl.Expr:
    """Whether a text is a list or an object, as JSON or Python write it."""
    return text.str.contains(f"{_OBJECT_TEXT}|{LIST_TEXT}")


def _check_kind(rows: pl.LazyFrame, name: str, title: str) -> None:
    dtype, text = rows.collect_schema().get(name, pl.Null()), pl.col(name)
    is_single = name in _SINGLE_TEXTS
    is_unfit = text.is_not_null()
    if dtype == pl.String:
        is_unfit = is_structured(text) if is_single else text.str.contains(_OBJECT_TEXT)
    elif not (is_single and dtype.is_nested()) and _innermost(dtype) in (pl.String, pl.Null):
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
    lists, kinds = [], dict[str, int]()
    for row, text in enumerate(column):
        is_single = column.name not in NAMED and text is not None and not is_list[row]
        lists.append([text] if is_single else parse_list(text, name, row))
        for value in lists[-1] or ():
            is_texts = column.name == "obj_aliases" and isinstance(value, list)
            is_texts = is_texts and all(isinstance(text, str) for text in value)
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
    series = pl.Series(column.name, lists)
    return series.cast(_TEXTS) if _innermost(series.dtype) == pl.Null else series


def as_rows(rows: pl.LazyFrame, *, are_plain: bool) -> pl.LazyFrame:
    """One row per pair and template, of rows that may have one object each."""
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
