"""The tables of the paper on distractors (3, 4 and 9), slices of metrics, and figures 1 to 8."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import polars as pl

from factsweep.operators.metrics.distractors.baselines import KARR_METRICS as KARR
from factsweep.operators.metrics.distractors.baselines import METRICS as BASELINES
from factsweep.operators.metrics.distractors.distractors import METRICS
from factsweep.operators.metrics.shared.rows import headings
from factsweep.operators.schemas import SETTING
from factsweep.operators.tables.shared import canvas, pivot
from factsweep.operators.tables.shared.canvas import Figure
from factsweep.operators.tables.shared.numbers import DASH, PARAMETERS, decimal, in_percent

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
_NO_CONTINUATIONS = "no continuations were asked for"
_REASONS: Mapping[str, str] = {
    "karr": "no clozes of other subjects and relations were asked for",
    "rouge_l": _NO_CONTINUATIONS,
    "precision": _NO_CONTINUATIONS,
    "bertscore": f"{_NO_CONTINUATIONS}, or metrics.encoder names no model",
    "judge": f"{_NO_CONTINUATIONS}, or metrics.judge_url names no endpoint",
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
    return pivot.join_columns(
        pivot.join_columns(_table(overall), interval, SETTING), counts, SETTING
    )


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
    rows = pivot.stack_sources(metrics, published).with_columns(sample=sample).drop_nulls("sample")
    table = _table(rows, "sample", "source")
    return table.sort(*SETTING, "sample", "source")


def by_relation(metrics: pl.DataFrame, labels: Mapping[str, str]) -> pl.DataFrame:
    """One row per relation, the lowest Min@1 first."""
    rows = pivot.select_relations(metrics, labels)
    worst = rows.filter(metric="min_at_1")
    return pivot.sort_relations(_table(rows, "ID", "Label"), SETTING, worst, best_first=False)


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
    columns = {"τ of the other folds": _TAU.column_with_dashes(pl.col("tau_others"))}
    columns["τ"] = _TAU.column_with_dashes(pl.col("tau"))
    measure = _printed_measure(pl.col("measure")).alias("measure")
    table = complete.select(*SETTING, measure, "fold", "hyperparameters", **columns, facts="n")
    return table.sort(*SETTING, "measure", "fold")


def missing(table: pl.DataFrame) -> pl.DataFrame:
    """The measures of Table 3 or 4 that the runs have no number of: measure, reason."""
    measured = table.filter(source="measured")["measure"]
    rows = [
        (printed, _REASONS.get(name, "no run of this setting"))
        for name, printed in MEASURES.items()
        if printed not in measured
    ]
    return pl.DataFrame(rows, schema={"measure": pl.String, "reason": pl.String}, orient="row")


def card(metrics: pl.DataFrame) -> pl.DataFrame:
    """The overall numbers for a narrow screen: one row per metric and variant."""
    return pivot.card(metrics, (*METRICS, *BASELINES, *KARR), _PERCENT, row_variants=("width",))


def _table(rows: pl.DataFrame, *further_keys: str) -> pl.DataFrame:
    """One row per setting and `further_keys` key; a column per metric and width of the beam."""
    heading = pl.col("metric").replace_strict(_HEADINGS, default=None)
    width = pl.col("variant").str.extract(r"(width=[0-9]+)")
    variant = pl.col("variant").str.replace(r",?width=[0-9]+", "")
    cells = rows.filter(heading.is_not_null()).with_columns(
        heading=pivot.join_names(heading, width),
        text=_PERCENT.column_with_dashes(pl.col("value")),
        variant=pl.when(variant != "").then(variant),
    )
    order = {heading: place for place, heading in enumerate(_HEADINGS.values())}
    columns = sorted(
        cells["heading"].unique().sort(), key=lambda column: order[column.partition(" width=")[0]]
    )
    return pivot.pivot(cells, [*SETTING, *further_keys], columns)


def _per_measure(
    metrics: pl.DataFrame, published: pl.DataFrame | None, names: Mapping[str, str], table: str
) -> pl.DataFrame:
    """One row per model, variant, measure and source, with a column per metric of `names`."""
    parts = [metrics.with_columns(source=pl.lit("measured"))]
    if published is not None:
        parts.insert(0, pivot.add_source(published.filter(table=table)))
    rows = pl.concat(parts, how="diagonal_relaxed").filter(pl.col("metric").is_in(list(names)))
    measure = _printed_measure(pl.col("slice").str.strip_prefix("measure="))
    text = _TAU.column_with_dashes(pl.col("value"))
    cells = rows.with_columns(pl.col("metric").replace_strict(names), measure=measure, text=text)
    keys = ["model", "benchmark", "variant", "measure", "source"]
    order = [
        *keys[:3],
        pl.col("measure").cast(pl.Enum([*MEASURES.values()]), strict=False),
        "source",
    ]
    # A baseline is the same under every retrieval.
    first = cells.unique([*keys, "metric"], keep="first", maintain_order=True)
    pivoted = first.pivot("metric", index=keys, values="text", maintain_order=True)
    return pivoted.sort(order)


def _printed_measure(measure: pl.Expr) -> pl.Expr:
    name = pl.when(measure == "distractors").then("setting").otherwise(measure)
    return name.replace_strict(dict(MEASURES), default=name, return_dtype=pl.String)


class FigureWithTable(NamedTuple):
    """A figure, its numbers as a table, and the table's heading."""

    table: pl.DataFrame
    figure: "Figure"
    heading: str


_TAU_LABEL = "Kendall's τ-b, mean of folds"
_AGREEMENT = "Agreement with people"
# The labels of x and y, the title, and the heading of the table.
_FIGURES = {
    "retrieval": (
        *("distractors", "Min@n in %", "Min@n"),
        "Min@n by number of distractors (Figures 1 and 2)",
    ),
    "n-distractors": (
        *("distractors", _TAU_LABEL, _AGREEMENT),
        f"{_AGREEMENT} by number of distractors (Figure 3)",
    ),
    "n-clozes": (
        *("clozes", _TAU_LABEL, _AGREEMENT),
        f"{_AGREEMENT} by number of clozes (Figure 4)",
    ),
    "gains": (
        *("clozes", "(1 + τ) / (1 + τ of one)", "Gain by clozes"),
        "What further clozes add to the agreement (Figure 6)",
    ),
    "model-size": (
        *("distractors", "Avg@n in %", "Avg@n, optimal distractors"),
        "Avg@n of optimal distractors by model (Figure 5)",
    ),
}


def draw_figure(
    name: str, points: pl.DataFrame, sample: str | None = None
) -> dict[str, FigureWithTable]:
    """A figure by its name, of all facts or of a sample; nothing where no point is defined.

    `points` has series, x and y: the figure has a line and the table a column per series.
    """
    if points["y"].drop_nulls().is_empty():
        return {}
    x, y, title, heading = _FIGURES[name]
    if sample is not None:
        name, title, heading = f"{name}-{sample}", f"{title}, {sample}", f"{heading}: {sample}"
    rows = points.sort("x").with_columns(pl.col("y").round(4))
    table = rows.pivot(
        "series", index="x", values="y", aggregate_function="first", maintain_order=True
    )
    figure = _lines_figure(points, xlabel=x, ylabel=y, title=title)
    return {name: FigureWithTable(table.rename({"x": x}), figure, heading)}


def _lines_figure(points: pl.DataFrame, **labels: str) -> "Figure":
    figure, axes = canvas.new_frame(5.2, 3.6, **labels)
    canvas.curves(axes, points.drop_nulls("y"), "x", "y", markersize=4)
    axes.legend(frameon=False, fontsize="small")
    return figure


def curve_points(curves: pl.DataFrame, column: Literal["min", "avg"]) -> pl.DataFrame:
    """Figures 1, 2 and 5: Min@n or Avg@n by n, one series per model and setting, in percent."""
    model, variant = _columns_that_vary(curves)
    series = pivot.join_names(*model, "setting", *variant)
    return curves.select(series.alias("series"), x="n", y=100 * pl.col(column))


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
    rows = rows.join(chosen, on=[*fold, "aggregation"], how="semi", nulls_equal=True)
    return _mean_over_folds(rows)


def cloze_points(taus: pl.DataFrame) -> pl.DataFrame:
    """Figure 4: the mean tau over folds by number of clozes, as the folds chose over all clozes."""
    rows = taus.filter("chosen").with_columns(x="n_clozes")
    keys = ["model", "benchmark", "variant", "measure"]
    first = rows.group_by(keys, maintain_order=True).agg(pl.first("setting"))
    baselines = rows.filter(pl.col("measure") != "distractors")
    baselines = baselines.join(first, on=[*keys, "setting"], how="semi", nulls_equal=True)
    return _mean_over_folds(pl.concat([rows.filter(measure="distractors"), baselines]))


def gains(points: pl.DataFrame) -> pl.DataFrame:
    """Figure 6: (1 + tau of n clozes) / (1 + tau of one); our copy is legible up to its `+ 1`."""
    single = points.filter(pl.col("x") == 1).select("series", single="y")
    joined_points = points.join(single, on="series", maintain_order="left")
    return joined_points.select("series", "x", y=(1 + pl.col("y")) / (1 + pl.col("single")))


def _mean_over_folds(rows: pl.DataFrame) -> pl.DataFrame:
    """The mean tau of each measure, as the paper prints it, by x; null where a fold has none."""
    model, variant = _columns_that_vary(rows)
    series = pivot.join_names(*model, *variant, _printed_measure(pl.col("measure")))
    is_complete = pl.col("tau").null_count() == 0
    return (
        rows.with_columns(series=series)
        .group_by("series", "x", maintain_order=True)
        .agg(y=pl.when(is_complete).then(pl.col("tau").mean()))
    )


def _columns_that_vary(rows: pl.DataFrame) -> list[list[str]]:
    """The model and the variant, each as far as there are several."""
    return [[column] * (rows[column].n_unique() > 1) for column in ("model", "variant")]


# Figure 8: the number that is extrapolated, and the one that is asked for.
EXTRAPOLATED, TARGET = "avg_at_20", 0.9
_LARGEST = 300  # the power of ten up to which a line is drawn


class Line(NamedTuple):
    """value = intercept + slope · log10(parameters), and R² of the fit."""

    intercept: float
    slope: float
    r_squared: float

    def size_reaching(self, value: float) -> float | None:
        """The log10 of the parameters at which the line reaches a value; null: it does not rise."""
        return (value - self.intercept) / self.slope if self.slope > 0 else None


def log_linear(log10_parameters: Sequence[float], values: Sequence[float]) -> Line | None:
    """Fit the line by least squares; null with fewer than three sizes (two always fit).

    Source: "Factual Knowledge Assessment of Language Models Using Distractors", appendix E, Figure
    8.
    """
    if len(set(log10_parameters)) < 3:
        return None
    from scipy.stats import linregress

    fit = linregress(log10_parameters, values)
    return Line(float(fit.intercept), float(fit.slope), float(fit.rvalue**2))


def draw_sizes(metrics: pl.DataFrame, costs: pl.DataFrame) -> dict[str, FigureWithTable]:
    """Figure 8: Avg@20 of `optimal` by model size, and the parameters at which it reaches 90 %."""
    billions = costs.filter(metric="billions_of_parameters").select("model", billions="value")
    values = metrics.filter(pl.col("slice").is_null(), setting="optimal", metric=EXTRAPOLATED)
    first = values.drop_nulls("value").unique("model", keep="first", maintain_order=True)
    models = first.join(billions.unique("model"), on="model", maintain_order="left")
    sizes = models.select("model", "value", parameters=1e9 * pl.col("billions")).sort("parameters")
    if sizes.is_empty():
        return {}
    percent = 100 * pl.col("value")
    table = sizes.select(
        "model", PARAMETERS.column(pl.col("parameters")), **{"Avg@20": percent.round(2)}
    )
    labels = {"xlabel": "parameters", "ylabel": "Avg@20 in %", "title": "Avg@20 by model size"}
    points = sizes.select(series=pl.lit("models"), x="parameters", y=percent)
    figure = _lines_figure(points, **labels, xscale="log")
    logs = sizes["parameters"].log10().to_list()
    if (line := log_linear(logs, sizes["value"].to_list())) is not None:
        end, quality = line.size_reaching(TARGET), f"R² = {decimal(3).text(line.r_squared)}"
        reached = DASH if end is None else f"1e{decimal(1).text(end)}"
        row = {"model": f"fit, {quality}", "parameters": reached, "Avg@20": 100 * TARGET}
        table = pl.concat([table, pl.DataFrame([row])], how="vertical_relaxed")
        if end is not None and end < _LARGEST:
            (axes,) = figure.axes
            y = [100 * (line.intercept + line.slope * log) for log in (logs[0], end)]
            label = f"log-linear fit, {quality}"
            axes.plot([10.0 ** logs[0], 10.0**end], y, "--", color="0.5", label=label)
            axes.axhline(100 * TARGET, color="0.8", linestyle=":")
            axes.legend(frameon=False, fontsize="small")
    heading = "Avg@20 by model size, and where the line leads (Figure 8)"
    return {"extrapolation": FigureWithTable(table, figure, heading)}
