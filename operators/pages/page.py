"""The page of results: what was measured, the headline, then the evidence, in one HTML file.

A page holds all that it shows: no server, no network, no other file. Whatever comes from data or
from a model is escaped by the templates; the facts lie compressed in base64, where no text of
theirs can end a script. The content security policy admits the page's own script and nothing else.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.pages.drawing import Drawing
from factsweep.operators.pages.grid import Grid, HeatMap, scale

_BETTER = {"higher": "higher is better", "lower": "lower is better", "zero": "best at 0", None: ""}
_ARROWS = {"higher": "↑", "lower": "↓", "zero": "→0", None: ""}
# Not a number, but a row of the card all the same.
_SCOPE = Metric(
    "scope",
    heading="scope",
    says="whether prompts share their demonstrations, or each has its own draw",
)


class Term(NamedTuple):
    """A metric under its heading: name, meaning, and better direction in words and as a sign."""

    metric: str
    meaning: str
    better: str
    arrow: str


def terms_of(headings: Iterable[str], metrics: Iterable[Metric]) -> dict[str, Term]:
    """The term of each heading that has one: `range draw=pair` has that of `range`.

    >>> sd = Metric("fluctuation_sd", heading="SD", says="how far accuracy moves", better="lower")
    >>> terms_of(["SD draw=pair", "unheard of"], [sd])
    {'SD draw=pair': Term(metric='fluctuation_sd', meaning='how far accuracy moves', \
better='lower is better', arrow='↓')}
    """
    known = {metric.heading: metric for metric in (_SCOPE, *metrics) if metric.says}
    found = {}
    for heading in headings:
        words = heading.split(" ")
        starts = (" ".join(words[:n]) for n in range(len(words), 0, -1))
        metric = next((known[start] for start in starts if start in known), None)
        if metric is not None:
            better = metric.better
            found[heading] = Term(metric.name, metric.says, _BETTER[better], _ARROWS[better])
    return found


@dataclass(frozen=True)
class Tile:
    """The main number of one row of results."""

    label: str
    value: str
    interval: str


@dataclass(frozen=True)
class Browser:
    """The facts that a reader can search; `payload` is what `fact_browser.encoded` gives."""

    payload: str
    n_facts: int
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Ran:
    """One run: its facts in a few rows, and its configuration as text."""

    name: str
    rows: Mapping[str, str]
    configuration: str


@dataclass(frozen=True)
class Page:
    """What a page of results says, in the order in which it says it."""

    title: str
    lead: str
    warnings: Sequence[str]
    main_metric: str
    tiles: Sequence[Tile]
    headline: Grid
    published: Grid | None
    terms: Mapping[str, Term]
    figures: Sequence[Drawing]
    comparisons: Grid | None
    heat_map: HeatMap | None
    templates: Sequence[Grid]
    browser: Browser | None
    tables: Sequence[Grid]
    left_out: Sequence[str]
    runs: Sequence[Ran]


@dataclass(frozen=True)
class EstimatedSetting:
    """The estimates of a setting: `notes` say why a number is null.

    `variance` is null where it is not split.
    """

    title: str
    estimates: Grid
    notes: Sequence[str]
    variance: "Variance | None"


@dataclass(frozen=True)
class Variance:
    """Where the variance comes from: what to ask next, the sources, and why one is null."""

    advice: str
    table: Grid
    notes: Sequence[str]


@dataclass(frozen=True)
class EstimatesPage:
    """What a page of estimates says: `lead` names the part of the prompts that was asked."""

    title: str
    lead: str
    main_metric: str
    tiles: Sequence[Tile]
    settings: Sequence[EstimatedSetting]
    runs: Sequence[Ran]


@dataclass(frozen=True)
class Entry:
    """A line of the index: a page, and what is on it."""

    link: str
    title: str
    lead: str


def page(content: Page) -> str:
    """The page as HTML."""
    return _render("page.html", page=content, heat_scale=Markup(scale()))


def estimates(content: EstimatesPage) -> str:
    """The page of estimates as HTML."""
    return _render("estimates.html", page=content)


def index(title: str, entries: Sequence[Entry]) -> str:
    """A page that lists pages, as HTML."""
    return _render("index.html", title=title, entries=entries)


def _render(template: str, **values: object) -> str:
    script = _own("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # What was written here, and not by a model or a data set, is not escaped.
    own = {"script": Markup(script), "style": Markup(_own("page.css"))}
    page = _environment().get_template(template)
    return page.render(**own, script_hash=f"sha256-{digest}", **values)


def _own(name: str) -> str:
    return (resources.files("factsweep.operators.pages") / "templates" / name).read_text("utf-8")


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("factsweep.operators.pages"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
