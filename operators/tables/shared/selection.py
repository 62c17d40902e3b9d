"""Some metrics of some settings: a row per setting, a column per metric."""

from collections.abc import Iterable, Sequence

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.metrics.shared.rows import Metric, headings
from factsweep.operators.schemas import SETTING
from factsweep.operators.tables.shared.numbers import as_printed, interval_as_printed, numbers_of
from factsweep.operators.tables.shared.pivot import join_names, pivot
from factsweep.operators.wording import suggestion

_NUMBERS = ("value", "ci_low", "ci_high")


def select_rows(rows: pl.DataFrame, metrics: str | None, settings: str | None) -> pl.DataFrame:
    """The rows over all facts of the named metrics and settings, in the order of the names.

    A setting is named with its variant, or without it for all of its variants. Null: all.

    Raises:
        InputError: the rows have no such metric or setting.

    >>> rows = pl.DataFrame({"setting": ["a", "a", "b"], "variant": [None, "x=1,y=2", None],
    ...     "metric": ["f1"] * 3})
    >>> select_rows(rows, "f1", "b,a x=1,y=2")["setting"].to_list()
    ['b', 'a']
    """
    if "slice" in rows.columns:
        rows = rows.filter(pl.col("slice").is_null())
    rows = rows.with_columns(title=join_names("setting", "variant"))
    for text, noun, columns in (
        (metrics, "metric", ["metric"]),
        (settings, "setting", ["title", "setting"]),
    ):
        if text is not None:
            known_names = (
                rows.select(columns).unpivot()["value"].unique(maintain_order=True).to_list()
            )
            parts = [
                rows.filter(pl.any_horizontal(pl.col(columns) == name))
                for name in _split_names(text, noun, known_names)
            ]
            rows = pl.concat(parts).unique(maintain_order=True)
    return rows.drop("title")


def _split_names(text: str, noun: str, known_names: Sequence[str]) -> list[str]:
    """The names in a list; a known name may have commas itself."""
    names, parts = list[str](), text.split(",")
    while parts:
        lengths = range(len(parts), 0, -1)
        n = next((n for n in lengths if ",".join(parts[:n]).strip() in known_names), None)
        if n is None:
            hint = suggestion(parts[0], known_names)
            exist = ", ".join(known_names)
            raise InputError(
                f"there is no {noun} {parts[0]!r} over all facts; there are {exist}.{hint}"
            )
        names.append(",".join(parts[:n]).strip())
        parts = parts[n:]
    return names


def numbers_by_setting(rows: pl.DataFrame) -> pl.DataFrame:
    """A row per setting and columns value_…, ci_low_… and ci_high_… of each metric."""
    table = rows.pivot("metric", index=SETTING, values=_NUMBERS)
    return table.drop(name for name in table.columns[len(SETTING) :] if table[name].is_null().all())


def texts_by_setting(rows: pl.DataFrame, metrics: Iterable[Metric]) -> pl.DataFrame:
    """A row per setting, and a column per metric under its title: value and interval."""
    shown_metrics = list(metrics)
    titles, numbers = headings(shown_metrics), numbers_of(shown_metrics)
    names = rows["metric"].unique(maintain_order=True)
    cells = rows.select(
        "model",
        join_names("setting", "variant").alias("setting"),
        heading=pl.col("metric").replace(titles),
        text=as_printed("value", numbers=numbers) + interval_as_printed(numbers),
    )
    return pivot(cells, ["model", "setting"], [titles.get(name, name) for name in names])
