"""The tables of the paper on distractors (3, 4 and 9), slices of metrics, and figures 1 to 8."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import polars as pl

from factsweep.operators.metrics.distractors.baselines import KARR_METRICS as KARR
from factsweep.operators.metrics.distractors.baselines import METRICS as BASELINES
from factsweep.operators.metrics.distractors.distractors import METRICS
from factsweep.operators.metrics.shared.metric import headings
from factsweep.operators.schemas import SETTING
from factsweep.operators.tables.shared.canvas import Figure, curves, framed
from factsweep.operators.tables.shared.numbers import DASH, PARAMETERS, decimal, in_percent
from factsweep.operators.tables.shared.wide import (
    by_source,
    called,
    joined,
    of_relations,
    ordered,
    wide,
    with_source,
)
from factsweep.operators.tables.shared.wide import card as card_of

_HEADINGS = headings((*METRICS, *BASELINES, *KARR))
_PERCENT, _TAU = in_percent(2), decimal(3)
# As the paper prints them, in the order of Table 3.
MEASURES: Mapping[str, str] = {
    "karr": "KaRR",
    "rouge_l": "ROUGE-L",
    "bertscore": "BERT-score",
    "precision": "Precision@n",
    "probability": "Probability",
    "random": "Dist. Random",
    "semantic": "Dist. Sem",
    "temporal": "Dist. Temp+Sem",
    "optimal": "Dist. ApprOpt",
    "exact": "Dist. exact",
    "judge": "LLM-as-a-judge",
}
REASONS: Mapping[str, str] = {
    "karr": "no clozes of other subjects and relations were asked for",
    "rouge_l": "no continuations were asked for",
    "precision": "no continuations were asked for",
    "bertscore": "no continuations were asked for, or metrics.encoder names no model",
    "judge": "no continuations were asked for, or metrics.judge_url names no endpoint",
}

TITLES: Mapping[str, str] = {
    "headline": "All numbers of the runs",
    "table-3": "Agreement with people (Table 3): Kendall's τ-b",
    "table-4": "Robustness to flawed sentences (Table 4): Kendall's τ-b",
    "configurations": "The configuration that each fold chose (Table 9)",
    "missing": "Measures of Table 3 that are missing, and why",
    "relations": "By relation, those known worst first",
    "popularity": "By popularity of the fact: 0 is the least popular tenth",
    "samples": "By sample of the set",
    "tokens": "By tokens of the right answer's likeliest name",
}


def headline(metrics: pl.DataFrame) -> pl.DataFrame:
    """One row per model, setting and variant, with every number, and the interval of Min@1."""
    overall = metrics.filter(pl.col("slice").is_null())
    counts = overall.filter(metric="left_out_at_1").select(*SETTING, prompts="n", failed="n_failed")
    ends = _PERCENT.interval().alias("Min@1, 95 %")
    interval = overall.filter(metric="min_at_1").select(*SETTING, ends)
    return joined(joined(_table(overall), interval, SETTING), counts, SETTING)


def by_slice(metrics: pl.DataFrame, name: str, heading: str) -> pl.DataFrame:
    """One row per part of a slice (`popularity`, `tokens`), in order."""
    rows = metrics.filter(pl.col("slice").str.starts_with(f"{name}="))
    part = pl.col("slice").str.strip_prefix(f"{name}=")
    number = part.cast(pl.Int64, strict=False)
    rows = rows.with_columns(part.alias(heading)).sort(*SETTING, number, maintain_order=True)
    return _table(rows, heading)


def by_sample(metrics: pl.DataFrame, published: pl.DataFrame | None = None) -> pl.DataFrame:
    """One row per sample of the set and source: the paper's S and S' are two samples of one set."""
    sample = pl.col("slice").str.extract("^sample=(.*)$")
    rows = by_source(metrics, published).with_columns(sample=sample).drop_nulls("sample")
    table = _table(rows, "sample", "source")
    return table.sort(*SETTING, "sample", "source", nulls_last=False)


def by_relation(metrics: pl.DataFrame, labels: Mapping[str, str]) -> pl.DataFrame:
    """One row per relation, those that are known worst first."""
    rows = of_relations(metrics, labels)
    worst = rows.filter(metric="min_at_1")
    return ordered(_table(rows, "ID", "Label"), SETTING, worst, best_first=False)


def agreement(metrics: pl.DataFrame, published: pl.DataFrame | None = None) -> pl.DataFrame:
    """Table 3: the mean and standard deviation of Kendall's tau over the folds, per measure."""
    names = {"kendall_tau": "Mean τ", "kendall_tau_sd": "Std τ"}
    return _per_measure(metrics, published, names, "3")


def robust(metrics: pl.DataFrame, published: pl.DataFrame | None = None) -> pl.DataFrame:
    """Table 4: tau between the values of flawed and of corrected sentences, per measure."""
    return _per_measure(metrics, published, {"robustness": "Robustness"}, "4")


def configurations(taus: pl.DataFrame) -> pl.DataFrame:
    """Table 9: the configuration that each fold chose, with its tau on that fold and the others."""
    complete = taus.filter(pl.col("n_clozes") == pl.col("n_clozes").max().over(SETTING), "chosen")
    named = complete.with_columns(measure=_named(pl.col("measure")))
    shown = {"τ of the other folds": "tau_others", "τ": "tau"}
    columns = {heading: _TAU.dashed(pl.col(name)) for heading, name in shown.items()}
    table = named.select(*SETTING, "measure", "fold", "hyperparameters", **columns, facts="n")
    return table.sort(*SETTING, "measure", "fold", nulls_last=False)


def missing(table: pl.DataFrame) -> pl.DataFrame:
    """The measures of Table 3 or 4 that the runs have no number of: measure, reason."""
    found = table.filter(source="measured")["measure"]
    rows = [
        (printed, REASONS.get(name, "no run of this setting"))
        for name, printed in MEASURES.items()
        if printed not in found
    ]
    return pl.DataFrame(rows, schema={"measure": pl.String, "reason": pl.String}, orient="row")


def card(metrics: pl.DataFrame) -> pl.DataFrame:
    """The overall numbers for a narrow screen: one row per metric and variant."""
    return card_of(metrics, _HEADINGS, _PERCENT, own=("width",))


def _table(rows: pl.DataFrame, *further: str) -> pl.DataFrame:
    """One row per setting and what else is named, a column per metric, each with its widths."""
    heading = pl.col("metric").replace_strict(_HEADINGS, default=None)
    # The width of a beam is no way of asking: it stands in the heading.
    width = pl.col("variant").str.extract(r"(width=[0-9]+)")
    variant = pl.col("variant").str.replace(r",?width=[0-9]+", "")
    cells = (
        rows.filter(heading.is_not_null())
        .with_columns(heading=called(heading, width), text=_PERCENT.dashed(pl.col("value")))
        .with_columns(variant=pl.when(variant != "").then(variant))
    )
    found = cells["heading"].unique().sort().to_list()
    order = {heading: place for place, heading in enumerate(_HEADINGS.values())}
    shown = sorted(found, key=lambda each: order[each.partition(" width=")[0]])
    return wide(cells, [*SETTING, *further], shown)


def _per_measure(
    metrics: pl.DataFrame, published: pl.DataFrame | None, names: Mapping[str, str], table: str
) -> pl.DataFrame:
    """One row per model, variant, measure and source, with a column per metric of `names`."""
    parts = [metrics.with_columns(source=pl.lit("measured"))]
    if published is not None:
        parts.insert(0, with_source(published.filter(table=table)))
    rows = pl.concat(parts, how="diagonal_relaxed").filter(pl.col("metric").is_in(list(names)))
    measure = _named(pl.col("slice").str.strip_prefix("measure="))
    text = _TAU.dashed(pl.col("value"))
    cells = rows.with_columns(pl.col("metric").replace_strict(names), measure=measure, text=text)
    keys = ["model", "benchmark", "variant", "measure", "source"]
    order = [*keys[:3], pl.col("measure").cast(pl.Enum(list(MEASURES.values()))), "source"]
    # A baseline is the same under every retrieval.
    first = cells.unique([*keys, "metric"], keep="first", maintain_order=True)
    table_ = first.pivot("metric", index=keys, values="text", maintain_order=True)
    return table_.sort(order, nulls_last=False)


def _named(measure: pl.Expr) -> pl.Expr:
    """A measure as the paper prints it; that of distractors by its retrieval."""
    known = pl.when(measure == "distractors").then("setting").otherwise(measure)
    return known.replace_strict(dict(MEASURES), default=None, return_dtype=pl.String)


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

    Source: "Factual Knowledge Assessment of Language Models Using Distractors", appendix E, Figure
    8.
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


_TAU_LABEL = "Kendall's τ-b, mean of folds"
_AGREEMENT = "Agreement with people"
FIGURES: Mapping[str, Axes] = {
    "retrieval": Axes(
        "distractors", "Min@n in %", "Min@n", "Min@n by number of distractors (Figures 1 and 2)"
    ),
    "n-distractors": Axes(
        "distractors", _TAU_LABEL, _AGREEMENT, f"{_AGREEMENT} by number of distractors (Figure 3)"
    ),
    "n-clozes": Axes(
        "clozes", _TAU_LABEL, _AGREEMENT, f"{_AGREEMENT} by number of clozes (Figure 4)"
    ),
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
    """One line per series (series, x, y), through its points in the order of x."""
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
    return {name: Drawn(points_table(points, axes.x), lines_figure(points, axes), axes.heading)}


def curve_points(curves: pl.DataFrame, column: Literal["min", "avg"]) -> pl.DataFrame:
    """Figures 1, 2 and 5: Min@n or Avg@n by n, one series per model and setting, in percent."""
    return curves.select(_series(curves), x="n", y=100 * pl.col(column))


def distractor_points(taus: pl.DataFrame) -> pl.DataFrame:
    """Figure 3: the mean tau over folds by number of distractors, one series per retrieval."""
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
    """Figure 4: the mean tau over folds by number of clozes, as the folds chose over all clozes."""
    rows = taus.filter("chosen").with_columns(x="n_clozes")
    own = ["model", "benchmark", "variant", "measure"]
    first = rows.group_by(own, maintain_order=True).agg(pl.first("setting"))
    baselines = rows.filter(pl.col("measure") != "distractors")
    once = baselines.join(first, on=[*own, "setting"], how="semi", nulls_equal=True)
    mine = pl.concat([rows.filter(measure="distractors"), once])
    return _mean_over_folds(mine)


def gains(points: pl.DataFrame) -> pl.DataFrame:
    """Figure 6: (1 + tau of n clozes) / (1 + tau of one); our copy is legible up to its `+ 1`."""
    one = points.filter(pl.col("x") == 1).select("series", one="y")
    both = points.join(one, on="series", maintain_order="left")
    return both.select("series", "x", y=(1 + pl.col("y")) / (1 + pl.col("one")))


class Sizes(NamedTuple):
    """Figure 8: `points` (model, parameters, value) and the line through them; null: too few."""

    points: pl.DataFrame
    line: Line | None


def sizes(metrics: pl.DataFrame, costs: pl.DataFrame) -> Sizes:
    """Avg@20 of each model by its number of parameters, of the retrieval `optimal`."""
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


def points_table(points: pl.DataFrame, x: str) -> pl.DataFrame:
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
