"""What the GPUs did while runs went on side by side: the share that answered, and the picture."""

import polars as pl

from factsweep.operators.schemas import schema
from factsweep.operators.tables.shared import canvas
from factsweep.operators.tables.shared.canvas import SERIES, Figure
from factsweep.operators.tables.shared.numbers import HOURS, percent

# One row per span of an engine; `began` and `ended` are in seconds. An engine holds its GPUs of a
# node between its spans, too; `there` are those of the whole cluster.
SPANS = schema("""
    run text, engine text, node text, gpus text[], doing text, began float, ended float, there int
""")
ANSWERING, LOADING = "answering", "loading"
_PERCENT = percent(1)


def busy_table(spans: pl.DataFrame) -> pl.DataFrame:
    """What the GPUs did, one row per run and one for all, while there were engines (in: SPANS).

    A GPU that engines share answers while one of them does. `waiting` is what is left of the time
    from an engine's beginning to its end; `free` is that of GPUs without any.
    """
    spans = together(spans)
    engines = spans.group_by("run", maintain_order=True).agg(pl.col("engine").n_unique())
    rows = _by_run(spans).join(engines, on="run", maintain_order="left")
    there, ended = spans.select(pl.max("there", "ended").fill_null(0)).row(0)
    total = rows.select(pl.lit(f"all of {there} GPUs").alias("run"), pl.exclude("run").sum())
    of_all = total.with_columns(of=pl.lit(there * ended), free=there * ended - pl.col("held"))
    both = pl.concat([rows.with_columns(of="held"), of_all], how="diagonal_relaxed")
    return both.with_columns(waiting=pl.col("held") - pl.col(ANSWERING) - pl.col(LOADING)).select(
        "run",
        pl.col("engine").cast(pl.String).alias("engines"),
        HOURS.column(pl.col("of") / 3600).alias("GPU-hours"),
        _PERCENT.column(pl.col(ANSWERING, LOADING, "waiting", "free") / pl.col("of")),
    )


def utilisation(spans: pl.DataFrame) -> float:
    """The share of the GPUs' time in which they answer, while there are engines at all."""
    spans = together(spans)
    whole = spans.select(pl.max("there") * pl.max("ended")).item()
    return float(_by_run(spans)[ANSWERING].sum() / whole)


def together(spans: pl.DataFrame) -> pl.DataFrame:
    """The spans from 0 on, without the times in which there was no engine: a day between two runs.

    >>> spans = pl.DataFrame({"began": [5.0, 6.0, 100.0], "ended": [8.0, 7.0, 101.0]})
    >>> together(spans).rows()
    [(0.0, 3.0), (1.0, 2.0), (3.0, 4.0)]
    """
    ordered = spans.sort("began", maintain_order=True)
    before = pl.col("ended").cum_max().shift(1, fill_value=ordered["began"].min())
    gap = (pl.col("began") - before).clip(lower_bound=0).cum_sum() + pl.col("began").min()
    return ordered.with_columns(pl.col("began") - gap, pl.col("ended") - gap)


def _by_run(spans: pl.DataFrame) -> pl.DataFrame:
    """run, held, answering, loading: seconds, each GPU by itself."""
    lanes = spans.explode("gpus")
    of = ["run", "node", "gpus"]
    held = lanes.group_by(*of, "engine", maintain_order=True).agg(
        pl.min("began"), pl.max("ended"), doing=pl.lit("held")
    )
    parts = pl.concat([lanes.select(held.columns), held])
    found = parts.group_by(*of, "doing", maintain_order=True).agg(_covered())
    doing = ["held", ANSWERING, LOADING]
    return found.pivot("doing", doing, index="run", values="seconds", aggregate_function="sum")


def _covered() -> pl.Expr:
    """How many seconds some spans cover together."""
    began, ended = (pl.col(name).sort_by("began") for name in ("began", "ended"))
    before = ended.cum_max().shift(1, fill_value=float("-inf"))
    more = ended.cum_max() - pl.max_horizontal(began, before)
    return more.clip(lower_bound=0).sum().alias("seconds")


def busy_figure(spans: pl.DataFrame) -> "Figure":
    """What ran on which GPU when: a lane per GPU, a colour per run; hatched while it loads."""
    spans = together(spans)
    lanes = spans.explode("gpus").select("node", "gpus").unique().sort("node", "gpus").rows()
    places = {lane: place for place, lane in enumerate(lanes)}
    nodes = list(dict.fromkeys(node for node, _ in lanes))
    runs = spans["run"].unique(maintain_order=True).to_list()
    unit, seconds = _unit(float(spans["ended"].max() or 0.0))  # type: ignore[arg-type]
    figure = canvas.blank(9, max(2.5, 0.28 * len(lanes) + 1.2 + 0.2 * len(runs) / 4))
    axes = figure.subplots()
    for number, run in enumerate(runs):
        colour = _colour(number)
        for row in spans.filter(run=run).explode("gpus").iter_rows(named=True):
            loads = row["doing"] == LOADING
            axes.barh(
                places[row["node"], row["gpus"]],
                (row["ended"] - row["began"]) / seconds,
                left=row["began"] / seconds,
                height=0.8,
                color="white" if loads else colour,
                edgecolor=colour,
                hatch="////" if loads else None,
                linewidth=0.4,
            )
        axes.barh(0, 0, color=colour, label=run)
    labels = [f"{nodes.index(node) + 1}: {gpu}" if len(nodes) > 1 else gpu for node, gpu in lanes]
    axes.set_yticks(range(len(lanes)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_ylabel("node: GPU" if len(nodes) > 1 else "GPU")
    share = _PERCENT.text(utilisation(spans))
    axes.set_title(f"{share} of the GPUs' time answers; hatched: a model loads")
    canvas.below(figure, 5, fontsize=7)
    return figure


def _unit(seconds: float) -> tuple[str, float]:
    if seconds < 300:
        return "seconds", 1.0
    return ("minutes", 60.0) if seconds < 3 * 3600 else ("hours", 3600.0)


def _colour(number: int) -> tuple[float, ...]:
    """One of six colours, the next six lighter, and so on."""
    from matplotlib.colors import to_rgb

    light = min(0.75, 0.25 * (number // len(SERIES)))
    return tuple(c + (1 - c) * light for c in to_rgb(SERIES[number % len(SERIES)][0]))
