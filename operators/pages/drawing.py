"""Figures as SVG in a page: they take its colours, in light and dark mode, and its fonts."""

import io
import re
from dataclasses import dataclass

from markupsafe import Markup

from factsweep.operators.tables.shared.canvas import Figure
from factsweep.operators.tables.shared.lettering import save

# Matplotlib's ink, paper and grid, and the series of operators.tables.shared.canvas, as the
# variables that page.css gives other values in dark mode.
_INK = {
    "#000000": "currentColor",
    "#ffffff": "var(--paper)",
    "#ebebeb": "var(--rule)",
    "#0072b2": "var(--blue)",
    "#d55e00": "var(--vermilion)",
    "#009e73": "var(--green)",
    "#cc79a7": "var(--purple)",
    "#e69f00": "var(--orange)",
    "#56b4e9": "var(--sky)",
}


@dataclass(frozen=True)
class Drawing:
    """A figure in a page. `is_plain`: it keeps its own colours, on white."""

    name: str
    title: str
    svg: Markup
    width: float
    is_plain: bool


def drawing(figure: "Figure", name: str, title: str) -> Drawing:
    """The figure as SVG whose ids are its own and whose text stays text.

    A figure that holds a picture keeps its colours: its labels are written for them.
    """
    import matplotlib as mpl

    out = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        save(figure, out, format="svg", transparent=True, metadata={"Date": None})
    svg = _element(out.getvalue(), title)
    is_plain = "<image" in svg
    if not is_plain:
        for colour, variable in _INK.items():
            svg = svg.replace(colour, variable)
    return Drawing(name, title, Markup(svg), figure.get_figwidth(), is_plain)


def _element(text: str, title: str) -> str:
    """The <svg> element alone, as an image with a name; groups' ids, which repeat, are dropped."""
    svg = text[text.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"(\d\.\d\d)\d+", r"\1", svg)
    svg = re.sub(r"\n\s*", "\n", svg)
    size = re.compile(r'(<svg[^>]*?) width="[^"]*"')
    svg = size.sub(r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1), count=1)
    label = Markup(' role="img" aria-label="{}"').format(title)
    return svg.replace("<svg", f"<svg{label}", 1)
