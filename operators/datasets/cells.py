"""Several answers in one cell of a table of one's own: where they seem to be, and their split."""

import json
import re

import polars as pl

from factsweep.operators.datasets.layouts import is_list_text, listed
from factsweep.operators.datasets.plain_columns import meant
from factsweep.operators.errors import InputError
from factsweep.operators.wording import count

_IDS = {"object": "object_id", "obj_ents": "obj_uris"}
_ALIASES = ("object_aliases", "subject_aliases", "obj_aliases", "sub_aliases")
_SIGN = re.compile(r"(?<=[^\s;|])\s*([;|；]|(?<=\s)/(?=\s))\s*(?=[^\s;|])")
_SHOWN = 3


def split(rows: pl.DataFrame, separator: str) -> pl.DataFrame:
    """The rows with one object each, and lists of aliases, where a cell has several.

    Raises:
        InputError: a row has another number of objects than of their ids.

    >>> split(pl.DataFrame({"relation": "capital", "object": "Sucre; La Paz"}), ";").rows()
    [('capital', 'Sucre'), ('capital', 'La Paz')]
    """
    rows = rows.rename(meant(rows.columns))
    for objects, ids in _IDS.items():
        if rows.schema.get(objects) == pl.String:
            names = [name for name in (objects, ids) if rows.schema.get(name) == pl.String]
            cells = [[_parts(cell, separator) for cell in rows[name]] for name in names]
            for row, parts in enumerate(zip(*cells, strict=True)):
                if len({*map(len, parts)}) > 1:
                    raise InputError(
                        f"row {row} (counted from 0): {objects} has {count(len(parts[0]), 'part')} "
                        f"and {ids} {len(parts[1])}; give each object its id."
                    )
            texts = pl.List(pl.String)
            columns = (
                pl.Series(name, parts, texts) for name, parts in zip(names, cells, strict=True)
            )
            rows = rows.with_columns(columns).explode(names)
    for name in (name for name in _ALIASES if rows.schema.get(name) == pl.String):
        lists = [
            listed(cell, name, row)
            if is_list_text(cell)
            else [*filter(None, _parts(cell, separator))]
            for row, cell in enumerate(rows[name])
        ]
        rows = rows.with_columns(pl.Series(name, lists, pl.List(pl.String)))
    return rows


def several(rows: pl.LazyFrame, option: str, separator: str | None) -> list[str]:
    """A warning about cells that seem to hold several answers; `option` splits them.

    Those that the `separator` splits are left out.

    >>> several(pl.LazyFrame({"object": ["Lima", "Sucre|La Paz"]}), "--separator ", None)
    ["1 cell seems to hold several answers (row 1: object 'Sucre|La Paz'), and is one answer as it \
stands; --separator '|' splits such cells."]
    """
    rows = rows.rename(meant(rows.collect_schema().names()))
    names = [name for name in (*_IDS, *_ALIASES) if rows.collect_schema().get(name) == pl.String]
    if not names:
        return []
    cells = rows.select(names).with_row_index("row").unpivot(names, index="row").drop_nulls("value")
    cells = cells.filter(pl.col("value").str.contains("[;|；]| / "))
    joined = [
        (row, name, cell, sign[1])
        for row, name, cell in cells.unique(
            ["variable", "value"], keep="first", maintain_order=True
        )
        .sort("row")
        .collect()
        .iter_rows()
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
        cells = (
            rows.select(pl.col(name))
            .with_row_index("row")
            .filter(pl.col(name).str.strip_chars() != "")
        )
        for row, cell in (
            cells.filter(~pl.col(name).str.contains(r"^\s*\[")).head(1).collect().iter_rows()
        ):
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
