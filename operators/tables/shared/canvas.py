"""The frame of figures, the look of their series, curves, legends and fonts.

Matplotlib takes half a second to load, and is loaded when a figure is drawn.
"""

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

    Axes = matplotlib.axes.Axes
    Figure = matplotlib.figure.Figure
else:
    Axes = Figure = Any

# Okabe and Ito's colours, which colour-blind readers can distinguish, each with its marker.
SERIES = (
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    ("#E69F00", "v"),
    ("#56B4E9", "P"),
)
# A series beyond the colours has the first one's colour and another stroke.
_STROKES = ("-", ":", "-.")
_MOST_MARKED = 20  # points of a series


def new_figure(width: float, height: float) -> "Figure":
    """A figure of that size in inches, without overlapping parts."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def new_frame(
    width: float, height: float, *, grid: Any = "both", **labels: Any
) -> tuple["Figure", "Axes"]:
    """A figure with one frame, its labels (`Axes.set`), and a grid in the background."""
    figure = new_figure(width, height)
    axes = figure.add_subplot()
    axes.set(**labels)
    axes.grid(color="0.92", axis=grid)
    axes.set_axisbelow(True)
    return figure, axes


def new_row_frame(
    names: Sequence[str], width: float, row: float, margins: float, **labels: Any
) -> tuple["Figure", "Axes"]:
    """A frame with a row for each name, the first at the top; each is `row` inches high."""
    figure, axes = new_frame(width, row * len(names) + margins, grid="x", **labels)
    axes.set_yticks(range(len(names)), names, fontsize="small")
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    return figure, axes


def legend_below(figure: "Figure", ncols: int, **options: Any) -> None:
    """Put the legend below the frames."""
    look = {"frameon": False, "fontsize": "small"}
    figure.legend(loc="outside lower center", ncols=ncols, **look, **options)


def series(
    rows: pl.DataFrame, names: Sequence[str] = ()
) -> Iterator[tuple[pl.DataFrame, dict[str, Any]]]:
    """The rows of each series with its look; `names` gives several frames the same looks."""
    for number, name in enumerate(names or rows["series"].unique(maintain_order=True)):
        colour, marker = SERIES[number % len(SERIES)]
        stroke = _STROKES[number // len(SERIES) % len(_STROKES)]
        look = {"label": name, "color": colour, "marker": marker, "linestyle": stroke}
        yield rows.filter(series=name), look


def curves(
    axes: "Axes",
    rows: pl.DataFrame,
    x: str,
    y: str,
    *,
    ends: tuple[str, str] | None = None,
    names: Sequence[str] = (),
    **style: Any,
) -> None:
    """A line for each series (column `series`) in the order of `x`, with a band between `ends`."""
    for series_rows, look in series(rows, names):
        points = series_rows.sort(x)
        unmarked = {"marker": ""} if points.height > _MOST_MARKED else {}
        if points.height:
            axes.plot(points[x], points[y], **look | unmarked | style)
        if ends is not None:
            low, high = (points[end].fill_null(points[y]) for end in ends)
            axes.fill_between(points[x], low, high, color=look["color"], alpha=0.15, linewidth=0)


_MISSING = re.compile(r"Glyph (\d+) .* missing from")
_NO_FONT = "Last Resort"  # a box for every letter


def save(figure: "Figure", out: IO[Any], **options: Any) -> str:
    """Save a figure, in fonts that have all its letters if any do; returns those none has."""
    if missing := _save(figure, out, **options):
        from matplotlib.text import Text

        families = _families(missing)
        for text in figure.findobj(Text):
            text.set_fontfamily([*text.get_fontfamily(), *families])
        if families:
            out.seek(0)
            out.truncate()
            missing = _save(figure, out, **options)
    return missing


def _save(figure: "Figure", out: IO[Any], **options: Any) -> str:
    letters = set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(out, **options)
    for warning in caught:
        if match := _MISSING.match(str(warning.message)):
            letters.add(chr(int(match[1])))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return "".join(sorted(letters))


def _families(letters: Iterable[str]) -> list[str]:
    """Installed fonts that have these letters, each at least one that the fonts before it lack."""
    from matplotlib.font_manager import fontManager
    from matplotlib.ft2font import FT2Font

    missing, families = {*map(ord, letters)}, []
    for font in sorted(fontManager.ttflist, key=lambda font: (font.name, font.fname)):
        if not missing:
            break
        try:
            supported = missing & FT2Font(font.fname).get_charmap().keys()
        except (OSError, RuntimeError):  # a font that was removed or cannot be read
            continue
        if supported and not font.name.startswith(_NO_FONT):
            families.append(font.name)
            missing -= supported
    return families
