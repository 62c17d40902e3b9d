"""The page of results: one HTML file without server, network or other files.

Templates escape texts of data and models; the security policy admits only the page's own script.
"""

import base64
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

import polars as pl
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from factsweep.operators.metrics.shared.rows import Metric
from factsweep.operators.tables.shared.canvas import Figure, save
from factsweep.operators.tables.shared.numbers import DASH, SHARE, in_percent
from factsweep.operators.tables.shared.paper_table import join_published
from factsweep.operators.tables.shared.pivot import relation_id, spread
from factsweep.operators.wording import name_servers

# A number as our tables print it: .1575, -.08, 17.62%, 1,600, .13–.18, .8175 (.7625–.8688), <.0001,
# -.01 to +.02, -.1 (-.3 to -.02), .5 ± .1 (3 seeds).
_NUMBER = re.compile(
    r"[-+±–<]?[\d.,]*\d%?"
    r"( ?[–(/][-+\d.,%–)/ ]*(to [-+\d.,%]+\))?| to [-+\d.,]+"
    r"|( ± [\d.,]+)? \([\d of]+ seeds\))?|–|n/a|"
)
STEPS = 20  # of the colour scale
_MOST_COLUMNS, _MOST_TILES = 40, 6  # on a page
_DARK = 0.55  # up to here white text reads best on cividis, from here black


@dataclass(frozen=True)
class Tile:
    """The main number of one row of results."""

    label: str
    value: str
    interval: str


@dataclass(frozen=True)
class Grid:
    """A table as texts. `numeric` marks the columns that hold numbers alone."""

    name: str
    title: str
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    n_left_out: int = 0


def grid(table: pl.DataFrame, name: str, title: str, *, most_rows: int = 100) -> Grid:
    """The first rows of a table as texts, without columns that have no value at all.

    >>> table = pl.DataFrame({"relation": ["capital"], "Acc@1": [0.81251], "variant": [None]})
    >>> texts = grid(table, "relations", "By relation")
    >>> texts.columns, texts.numeric, texts.rows
    (('relation', 'Acc@1'), (False, True), (('capital', '.8125'),))
    """
    names = [column for column in table.columns if table[column].null_count() < table.height]
    first_rows = table.select(names).head(most_rows)
    columns = [
        [SHARE.text(x) if isinstance(x, float) else DASH if x is None else str(x) for x in series]
        for series in first_rows.iter_columns()
    ]
    rows = tuple(zip(*columns, strict=True))
    numeric = tuple(
        all(map(_NUMBER.fullmatch, texts)) and any(text != DASH for text in texts)
        for texts in columns
    )
    return Grid(name, title, tuple(names), numeric, rows, table.height - first_rows.height)


@dataclass(frozen=True)
class Cell:
    """A number, and its step on the colour scale; a dash has none."""

    text: str
    step: int | None


@dataclass(frozen=True)
class HeatMap:
    """One row per relation, by their mean, the best first; one column per model and setting."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[Cell, ...]], ...]
    n_left_out: int


def heat_map(metrics: pl.DataFrame, metric: str, labels: Mapping[str, str]) -> HeatMap | None:
    """The metric by relation; null where no row is of a relation.

    `metrics` has asked (model and setting), slice, metric, value.

    >>> rows = [("tiny zero-shot", "relation=P36", "acc_at_1", 0.25)]
    >>> table = pl.DataFrame(rows, schema=["asked", "slice", "metric", "value"], orient="row")
    >>> heat_map(table, "acc_at_1", {"P36": "capital"}).rows
    (('P36', 'capital', (Cell(text='25', step=5),)),)
    """
    rows = metrics.filter(pl.col("slice").str.contains(r"^relation=[^,]+$"), metric=metric)
    if rows.is_empty():
        return None
    rows = rows.with_columns(relation=relation_id())
    wide = rows.pivot("asked", index="relation", values="value", maintain_order=True)
    names = wide.columns[1:]
    order = [pl.mean_horizontal(names), pl.col("relation")]
    wide = wide.sort(order, descending=[True, False], nulls_last=True)
    columns = names[:_MOST_COLUMNS]
    cells = tuple(
        (str(relation), labels.get(relation) or "", tuple(map(_cell, values)))
        for relation, *values in wide.select("relation", *columns).iter_rows()
    )
    return HeatMap(tuple(columns), cells, len(names) - len(columns))


def _cell(value: float | None) -> Cell:
    if value is None:
        return Cell("–", None)
    return Cell(in_percent(0).text(value), round(STEPS * min(max(value, 0.0), 1.0)))


def scale() -> str:
    """The steps of the colour scale as CSS: cividis, which colour-blind readers can read.

    >>> scale().splitlines()[0]
    '.h0{background:#00224e;color:#fff}'
    """
    from matplotlib import colormaps
    from matplotlib.colors import rgb2hex

    colours = colormaps["cividis"]
    return "\n".join(
        f".h{step}{{background:{rgb2hex(colours(step / STEPS))};"
        f"color:{'#fff' if step <= _DARK * STEPS else '#000'}}}"
        for step in range(STEPS + 1)
    )


Card = Callable[[pl.DataFrame], pl.DataFrame]
_ASKED = ("model", "setting", "variant", "slice", "metric")
_BESIDE = (*_ASKED, "measured", "source", "published", "difference")


def headline(metrics: pl.DataFrame, card: Card) -> Grid:
    """One row per metric, one column per model and setting; `card` gives those of one model."""
    models = metrics["model"].unique(maintain_order=True).to_list()
    cards = [card(metrics.filter(model=model)) for model in models]
    if len(models) > 1:
        cards = [
            rows.rename({name: f"{model} {name}" for name in rows.columns if name != "metric"})
            for model, rows in zip(models, cards, strict=True)
        ]
    table, *other_cards = cards or [pl.DataFrame(schema={"metric": pl.String})]
    options: Any = {"how": "full", "coalesce": True, "maintain_order": "left_right"}
    for rows in other_cards:
        table = table.join(rows, on="metric", **options)
    return grid(table, "headline", "Metrics over all facts")


def tiles(metrics: pl.DataFrame, metric: str) -> Iterator[Tile]:
    """The main metric of each model and setting, in percent; none if there are too many.

    `metrics` has asked, slice, metric, value, ci_low, ci_high.
    """
    rows = metrics.filter(pl.col("slice").is_null(), pl.col("metric") == metric).drop_nulls("value")
    if rows.height > _MOST_TILES:
        return
    rows = rows.with_columns(spread=spread(rows, in_percent(1)))
    columns = ("asked", "spread", "value", "ci_low", "ci_high")
    for name, seeds, *numbers in rows.select(columns).iter_rows():
        value, low, high = map(in_percent(1).text, numbers)
        yield Tile(name, f"{value} %", seeds if DASH in (low, high) else f"{low} – {high}")


def beside_published(metrics: pl.DataFrame, published: pl.DataFrame | None) -> Grid | None:
    """The measured numbers that a paper has too; null where there is none."""
    if published is None or (rows := join_published(metrics, published)).is_empty():
        return None
    return grid(rows.select(_BESIDE), "published", "Beside the published numbers", most_rows=60)


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
    """The figure as SVG whose ids are its own; one that holds a picture keeps its colours."""
    import matplotlib as mpl

    out = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        save(figure, out, format="svg", transparent=True, metadata={"Date": None})
    # The <svg> element alone, as an image with a name; groups' ids, which repeat, are dropped.
    svg = out.getvalue()[out.getvalue().index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"(\d\.\d\d)\d+", r"\1", svg)
    svg = re.sub(r"\n\s*", "\n", svg)
    for side in ("height", "width"):
        svg = re.sub(rf'(<svg[^>]*?) {side}="[^"]*"', r"\1", svg, count=1)
    label = Markup(' role="img" aria-label="{}"').format(title)
    svg = svg.replace("<svg", f"<svg{label}", 1)
    is_plain = "<image" in svg
    if not is_plain:
        for colour, variable in _INK.items():
            svg = svg.replace(colour, variable)
    return Drawing(name, title, Markup(svg), figure.get_figwidth(), is_plain)


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
    by_heading = {metric.title: metric for metric in (_SCOPE, *metrics) if metric.says}
    terms = {}
    for heading in headings:
        words = heading.split(" ")
        starts = (" ".join(words[:n]) for n in range(len(words), 0, -1))
        metric = next((by_heading[start] for start in starts if start in by_heading), None)
        if metric is not None:
            better = metric.better
            terms[heading] = Term(metric.name, metric.says, _BETTER[better], _ARROWS[better])
    return terms


def render(template: str, **content: Any) -> str:
    """The HTML of a page or an index, by its template, which names its content."""
    folder = resources.files("factsweep.operators.pages") / "templates"
    script, style = ((folder / name).read_text("utf-8") for name in ("page.js", "page.css"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # The project's own texts are not escaped.
    markup = {"script": Markup(script), "style": Markup(style)}
    environment = Environment(
        loader=PackageLoader("factsweep.operators.pages"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals |= {"heat_scale": lambda: Markup(scale())}
    page = environment.get_template(template)
    return page.render(**markup, script_hash=f"sha256-{digest}", page=content)


def describe_run(
    name: str, record: Mapping[str, Any], rows: Mapping[str, str], parts: Sequence[str]
) -> dict[str, Any]:
    """A run with its rows, and some parts of its configuration."""
    content = {part: record["run"][part] for part in parts if part in record["run"]}
    configuration = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return {"name": name, "rows": rows, "configuration": configuration}


def ran_rows(record: Mapping[str, Any], errors: Mapping[str, int]) -> dict[str, str]:
    """The rows by heading; `errors` counts the prompts without an answer by setting."""
    run, cost = record["run"], record.get("cost", {})
    model, hardware = run["model"], record["hardware"]
    engines = {
        f"{row['hardware']} × {row['gpus']}" if row["gpus"] else str(row["hardware"])
        for row in record.get("spent", [])
        if row["model"] and row["hardware"]
    }
    rows = {
        "model": f"{model['id']} ({model['source']})",
        "revision": record["model_revision"],
        "computed in": model["dtype"],
        **({"quantised": quantised} if (quantised := record.get("model_quantised")) else {}),
        "trust_remote_code": "ON" if model.get("trust_remote_code") else "off",
        "engine": run["decoding"]["engine"],
        "seed": str(run["seed"]),
        "driver's machine": f"{hardware['cpus']} CPUs, {hardware.get('cpu', hardware['machine'])}",
        **({"an engine": ", ".join(sorted(engines))} if engines else {}),
        **_cost(cost),
        "prompts without an answer": "; ".join(f"{k}: {n:,}" for k, n in errors.items()),
        "factsweep commit": record["commit"] or "unknown",
        "versions": ", ".join(f"{k} {v}" for k, v in record["versions"].items()),
    }
    if endpoint := model.get("endpoint"):
        urls = endpoint["urls"] if isinstance(endpoint, Mapping) else [endpoint]
        rows |= {"model": f"{model['id']} at {name_servers(urls)}"}
        del rows["computed in"], rows["trust_remote_code"]
    if run.get("answers"):  # no engine of ours gave them
        rows |= {"model": model["name"], "engine": "none: answers of another system"}
        rows.pop("computed in", None)
    return rows


def _cost(cost: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Hours by stage, tokens, and the share of prompt tokens that the prefix cache gave."""
    rows = {}
    for unit, heading in {"gpu_hours": "GPU-hours", "core_hours": "core-hours"}.items():
        hours = {stage: counts[unit] for stage, counts in cost.items() if counts.get(unit)}
        parts = ", ".join(f"{stage} {n:.3g}" for stage, n in hours.items())
        rows[heading] = f"{sum(hours.values()):.3g} ({parts})" if hours else ""
    tokens = {
        name: sum(counts.get(name, 0) for counts in cost.values())
        for name in ("prompt_tokens", "output_tokens", "cached_tokens")
    }
    if any("cost" in counts for counts in cost.values()):
        rows["spent"] = f"{sum(counts.get('cost', 0) for counts in cost.values()):,.4f}"
    if tokens["prompt_tokens"]:
        rows["tokens"] = f"{tokens['prompt_tokens']:,} in, {tokens['output_tokens']:,} out"
        rows["cached"] = f"{tokens['cached_tokens'] / tokens['prompt_tokens']:.0%} of the tokens in"
    return {heading: text for heading, text in rows.items() if text}
