"""Plain tables of facts: what their columns are called, and cells of several answers."""

import ast
import io
import json
import re
import tokenize
from collections.abc import Collection
from itertools import pairwise
from typing import Any

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.wording import count

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


_OBJECT_IDS = {"object": "object_id", "obj_ents": "obj_uris"}
_ALIASES = ("object_aliases", "subject_aliases", "obj_aliases", "sub_aliases")
_SIGN = re.compile(r"(?<=[^\s;|])\s*([;|；]|(?<=\s)/(?=\s))\s*(?=[^\s;|])")
_SHOWN = 3
_TEXTS = pl.List(pl.String)


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

    Those that the `separator` splits are left out.

    >>> rows = pl.LazyFrame({"object": ["Lima", "Sucre|La Paz"]})
    >>> warn_of_joined_cells(rows, "--separator ", None)
    ["1 cell seems to hold several answers (row 1: object 'Sucre|La Paz'), and is one answer as it \
stands; --separator '|' splits such cells."]
    """
    rows = rows.rename(match_columns(rows.collect_schema().names()))
    schema = rows.collect_schema()
    names = [name for name in (*_OBJECT_IDS, *_ALIASES) if schema.get(name) == pl.String]
    if not names:
        return []
    cells = rows.select(names).with_row_index("row").unpivot(names, index="row").drop_nulls("value")
    cells = cells.filter(pl.col("value").str.contains("[;|；]| / "))
    cells = cells.unique(["variable", "value"], keep="first", maintain_order=True).sort("row")
    joined = [
        (row, name, cell, sign[1])
        for row, name, cell in cells.collect().iter_rows()
        if (sign := _SIGN.search(cell)) and not is_list_text(cell)
        if separator is None or separator not in cell
    ]
    if not joined:
        return []
    first = ", ".join(f"row {row}: {name} {cell[:80]!r}" for row, name, cell, _ in joined[:_SHOWN])
    seem, are = ("seems", "is") if len(joined) == 1 else ("seem", "each is")
    mark = " / " if joined[0][3] == "/" else joined[0][3]
    return [
        f"{count(len(joined), 'cell')} {seem} to hold several answers ({first}), and {are} one "
        f"answer as it stands; {option}{mark!r} splits such cells."
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
            splits = f", or {option}{sign[1]!r} to split such cells" if sign else ""
            raise InputError(
                f"row {row} (counted from 0): {name} is {cell[:80]!r}, no list; write "
                f"{json.dumps(parts, ensure_ascii=False)}{splits}."
            )


def _parts(cell: str | None, separator: str) -> list[str | None]:
    """The texts between separators; the cell itself where it has none."""
    parts = [part.strip() for part in (cell or "").split(separator)]
    return [*filter(None, parts)] or [cell]


# A list as a text: how it begins, how it ends without a beginning, or numbers and truth values. A
# template may begin with [X], and a name with [6].
LIST_TEXT = (
    r"^\s*\[\s*['\"\[\]]|^[^\[]*['\"]\s*\]\s*$|"
    r"^\s*\[(?:[\s,]|-?\d[\d.]*|[Tt]rue|[Ff]alse|null|None)*\]?\s*$"
)


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
    raise InputError(
        f"row {row} (counted from 0): {name} is {text[:80]!r}, no list as JSON or Python write it; "
        "correct it."
    )


def _joins_texts(text: str) -> bool:
    """Whether Python joined neighbours that no comma parts: `['a' 'b']`, as NumPy prints a list."""
    if not re.search(r"""['"]\s+['"]""", text):  # few texts have it, and tokens are slow
        return False
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    kinds = [token.type for token in tokens if token.type != tokenize.NL]
    return any(pair == (tokenize.STRING, tokenize.STRING) for pair in pairwise(kinds))
