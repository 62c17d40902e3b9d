"""The figures of the paper on distractors (1 to 6 and 8): their numbers, and the drawings."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import polars as pl

from factsweep.operators.schemas import SETTING
from factsweep.operators.tables.distractors.distractors import MEASURES
from factsweep.operators.tables.shared.asking import called
from factsweep.operators.tables.shared.canvas import Figure, curves, framed
from factsweep.operators.tables.shared.numbers import DASH, PARAMETERS, decimal

# Figure 8: the number that is extrapolated, and the one that is asked for.
EXTRAPOLATED, TARGET = "avg_at_20", 0.9
_LARGEST = 300  # the power of ten up to which a line is drawn


class Line(NamedTuple):
    """value = intercept + slope · log10(parameters), and R² of the fit."""

    intercept: float
    slope: float
    r_squared: float

    def reaches(self, value: float) -> float | None:
        """The log10 of the parameters at which the line reaches a value; null: it does not rise."""
        return (value - self.intercept) / self.slope if self.slope > 0 else None


def log_linear(log10_parameters: Sequence[float], values: Sequence[float]) -> Line | None:
    """Fit the line by least squares; null with fewer than three sizes, two of which always fit.

    Source: the paper on distractors, Figure 8, appendix E.

    >>> line = log_linear([8.0, 9.0, 10.0], [0.5, 0.6, 0.7])
    >>> round(line.slope, 3), round(line.r_squared, 3), round(line.reaches(0.9), 3)
    (0.1, 1.0, 12.0)
    """
    if len(set(log10_parameters)) < 3:
        return None
    from scipy.stats import linregress

    found = linregress(log10_parameters, values)
    return Line(float(found.intercept), float(found.slope), float(found.rvalue**2))


class Axes(NamedTuple):
    """What stands on the axes of a figure, over it, and over its numbers."""

    x: str
    y: str
    title: str
    heading: str = ""


class Drawn(NamedTuple):
    """A figure, its numbers, and what stands over these."""

    table: pl.DataFrame
    figure: "Figure"
    heading: str


_TAU = "Kendall's τ-b, mean of folds"
_AGREEMENT = "Agreement with people"
FIGURES: Mapping[str, Axes] = {
    "retrieval": Axes(
        "distractors", "Min@n in %", "Min@n", "Min@n by number of distractors (Figures 1 and 2)"
    ),
    "n-distractors": Axes(
        "distractors", _TAU, _AGREEMENT, f"{_AGREEMENT} by number of distractors (Figure 3)"
    ),
    "n-clozes": Axes("clozes", _TAU, _AGREEMENT, f"{_AGREEMENT} by number of clozes (Figure 4)"),
    "gains": Axes(
        "clozes",
        "(1 + τ) / (1 + τ of one)",
        "Gain by clozes",
        "What further clozes add to the agreement (Figure 6)",
    ),
    "model-size": Axes(
        "distractors",
        "Avg@n in %",
        "Avg@n, optimal distractors",
        "Avg@n of optimal distractors by model (Figure 5)",
    ),
    "extrapolation": Axes(
        "parameters",
        "Avg@20 in %",
        "Avg@20 by model size",
        "Avg@20 by model size, and where the line leads (Figure 8)",
    ),
}


def lines_figure(points: pl.DataFrame, axes_of: Axes, xscale: str = "linear") -> "Figure":
    """One line per series, through its points in the order of x.

    `points` has series, x and y.
    """
    labels = {"xlabel": axes_of.x, "ylabel": axes_of.y, "title": axes_of.title, "xscale": xscale}
    figure, axes = framed(5.2, 3.6, **labels)
    curves(axes, points.drop_nulls("y"), "x", "y", markersize=4)
    axes.legend(frameon=False, fontsize="small")
    return figure


def drawn(name: str, points: pl.DataFrame, sample: str | None = None) -> dict[str, Drawn]:
    """One of FIGURES by its name, of all facts or of a sample; nothing where there is no point."""
    if points["y"].drop_nulls().is_empty():
        return {}
    axes = FIGURES[name]
    if sample is not None:
        name = f"{name}-{sample}"
        named = {"title": f"{axes.title}, {sample}", "heading": f"{axes.heading}: {sample}"}
        axes = axes._replace(**named)
    return {name: Drawn(wide(points, axes.x), lines_figure(points, axes), axes.heading)}


def curve_points(curves: pl.DataFrame, column: Literal["min", "avg"]) -> pl.DataFrame:
    """Figures 1, 2 and 5: Min@n or Avg@n by n, one series per model and setting, in percent.

    `curves` has model, setting, variant, n and the column. Columns: series, x, y.
    """
    return curves.select(_series(curves), x="n", y=100 * pl.col(column))


def distractor_points(taus: pl.DataFrame) -> pl.DataFrame:
    """Figure 3: the mean tau over folds by number of distractors, one series per retrieval.

    In each fold the aggregation counts that was chosen there. `taus` has SETTING and the columns of
    `agreement.AGREEMENT`.
    """
    rows = (
        taus.filter(pl.col("n_clozes") == pl.col("n_clozes").max().over(SETTING))
        .filter(measure="distractors")
        .with_columns(
            aggregation=pl.col("hyperparameters").str.extract(r"^(\w+)@"),
            x=pl.col("hyperparameters").str.extract(r"@(\d+)$").cast(pl.Int64),
        )
    )
    fold = [*SETTING, "fold"]
    chosen = rows.filter("chosen").select(*fold, "aggregation")
    mine = rows.join(chosen, on=[*fold, "aggregation"], how="semi", nulls_equal=True)
    return _mean_over_folds(mine)


def cloze_points(taus: pl.DataFrame) -> pl.DataFrame:
    """Figure 4: the mean tau over folds by number of clozes, one series per measure.

    The configurations are those that the folds chose over all clozes. A baseline is the same under
    every retrieval, and is taken from the first.
    """
    rows = taus.filter("chosen").with_columns(x="n_clozes")
    own = ["model", "benchmark", "variant", "measure"]
    first = rows.group_by(own, maintain_order=True).agg(pl.first("setting"))
    baselines = rows.filter(pl.col("measure") != "distractors")
    once = baselines.join(first, on=[*own, "setting"], how="semi", nulls_equal=True)
    mine = pl.concat([rows.filter(measure="distractors"), once])
    return _mean_over_folds(mine)


def gains(points: pl.DataFrame) -> pl.DataFrame:
    """Figure 6: (1 + tau of n clozes) / (1 + tau of one), one series per measure.

    `points` are those of Figure 4. The formula is illegible in our copy of the paper, up to its
    `+ 1`.
    """
    one = points.filter(pl.col("x") == 1).select("series", one="y")
    both = points.join(one, on="series", maintain_order="left")
    return both.select("series", "x", y=(1 + pl.col("y")) / (1 + pl.col("one")))


class Sizes(NamedTuple):
    """Figure 8: `points` (model, parameters, value) and the line through them; null: too few."""

    points: pl.DataFrame
    line: Line | None


def sizes(metrics: pl.DataFrame, costs: pl.DataFrame) -> Sizes:
    """Avg@20 of each model by its number of parameters, of the retrieval `optimal`.

    `costs` has the rows `billions_of_parameters` of the metrics table. Where models were asked in
    several variants, the first counts.
    """
    billions = costs.filter(metric="billions_of_parameters").select("model", billions="value")
    values = metrics.filter(pl.col("slice").is_null(), setting="optimal", metric=EXTRAPOLATED)
    first = values.drop_nulls("value").unique("model", keep="first", maintain_order=True)
    both = first.join(billions.unique("model"), on="model", maintain_order="left")
    size = 1e9 * pl.col("billions")
    points = both.select("model", parameters=size, value="value").sort("parameters")
    logs = points["parameters"].log10().to_list()
    return Sizes(points, log_linear(logs, points["value"].to_list()))


def drawn_sizes(found: Sizes) -> dict[str, Drawn]:
    """Figure 8 by its name; nothing where no size is known."""
    if found.points.is_empty():
        return {}
    heading = FIGURES["extrapolation"].heading
    return {"extrapolation": Drawn(sizes_table(found), sizes_figure(found), heading)}


def sizes_figure(found: Sizes) -> "Figure":
    """Avg@20 over the number of parameters, with the fitted line up to where it reaches 90 %."""
    points = found.points.select(series=pl.lit("models"), x="parameters", y=100 * pl.col("value"))
    figure = lines_figure(points, FIGURES["extrapolation"], "log")
    (axes,) = figure.axes
    line, smallest = found.line, found.points["parameters"].log10().to_list()
    end = None if line is None else line.reaches(TARGET)
    if line is not None and end is not None and end < _LARGEST:
        logs = [smallest[0], end]
        y = [100 * (line.intercept + line.slope * each) for each in logs]
        label = f"log-linear fit, R² = {decimal(3).text(line.r_squared)}"
        axes.plot([10.0**each for each in logs], y, "--", color="0.5", label=label)
        axes.axhline(100 * TARGET, color="0.8", linestyle=":")
        axes.legend(frameon=False, fontsize="small")
    return figure


def sizes_table(found: Sizes) -> pl.DataFrame:
    """Figure 8 as numbers: a row per model, and one of what the line says."""
    size, value = PARAMETERS.column(pl.col("parameters")), (100 * pl.col("value")).round(2)
    rows = found.points.select("model", parameters=size, **{"Avg@20": value})
    if found.line is None:
        return rows
    end = found.line.reaches(TARGET)
    said = f"fit, R² = {decimal(3).text(found.line.r_squared)}"
    reached = DASH if end is None else f"1e{decimal(1).text(end)}"
    last = pl.DataFrame({"model": [said], "parameters": [reached], "Avg@20": [100 * TARGET]})
    return pl.concat([rows, last], how="vertical_relaxed")


def wide(points: pl.DataFrame, x: str) -> pl.DataFrame:
    """A figure's numbers as a table: one row per x, one column per series."""
    return (
        points.sort("x")
        .with_columns(pl.col("y").round(4))
        .pivot("series", index="x", values="y", aggregate_function="first", maintain_order=True)
        .rename({"x": x})
    )


def _mean_over_folds(rows: pl.DataFrame) -> pl.DataFrame:
    """The mean tau of each measure, as the paper prints it, by x; null where a fold has none."""
    own = pl.when(pl.col("measure") == "distractors").then("setting").otherwise("measure")
    measure = own.replace_strict(dict(MEASURES), default=own, return_dtype=pl.String)
    whole = pl.col("tau").null_count() == 0
    named = rows.with_columns(_series(rows, measure))
    return named.group_by("series", "x", maintain_order=True).agg(
        y=pl.when(whole).then(pl.col("tau").mean())
    )


def _series(rows: pl.DataFrame, measure: pl.Expr | None = None) -> pl.Expr:
    """The measure or the setting, with the model and the variant as far as there are several."""
    model, variant = ([each] * (rows[each].n_unique() > 1) for each in ("model", "variant"))
    names = [*model, "setting", *variant] if measure is None else [*model, *variant, measure]
    return called(*names).alias("series")
