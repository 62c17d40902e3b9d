"""The tables and figures of BELIEF: settings and metrics, effects of one change, calibration."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import permutations
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.metrics.belief.answers import ACC_AT_1
from factsweep.operators.metrics.belief.belief import CONFIDENCE, METRICS
from factsweep.operators.metrics.belief.calibration import AUROC
from factsweep.operators.metrics.belief.risk_coverage import risk_coverage
from factsweep.operators.metrics.comparing.comparison import COMPARISON, adjust_p_values, compare
from factsweep.operators.metrics.comparing.paired import METRICS as PAIRED
from factsweep.operators.metrics.comparing.paired import (
    SharedCounts,
    count_shared,
    matched_terms,
    unit_between,
)
from factsweep.operators.metrics.noise import CUT_SHARE, FLIP_RATE
from factsweep.operators.metrics.pass_at_k import METRICS as PASS
from factsweep.operators.metrics.shared.rows import headings
from factsweep.operators.schemas import SETTING
from factsweep.operators.tables.shared import canvas, pivot
from factsweep.operators.tables.shared.canvas import SERIES, Figure
from factsweep.operators.tables.shared.numbers import (
    DASH,
    SHARE,
    SHORT_SHARE,
    as_printed,
    difference,
    interval_as_printed,
    number,
    numbers_of,
    shares_interval,
)
from factsweep.operators.tables.shared.pivot import Answers, ModelSetting

SHOWN = (*METRICS, *PASS, CUT_SHARE, FLIP_RATE)
HEADINGS = headings(SHOWN)
_NUMBERS = numbers_of(SHOWN)
_INTERVAL = "95 % interval"


def headline(metrics: pl.DataFrame) -> pl.DataFrame:
    """One row per model, benchmark, setting and variant, as texts; several seeds are mean ± SD."""
    overall = metrics.filter(pl.col("slice").is_null(), ~pivot.is_kind())
    text = pl.concat_str(as_printed("value", numbers=_NUMBERS), pivot.spread(overall, SHARE))
    counts = overall.filter(metric=ACC_AT_1.name).select(
        *SETTING, shares_interval(_INTERVAL), prompts="n", failed="n_failed"
    )
    scope = _scope(pl.col("setting"), pl.col("variant"))
    table = pivot.join_columns(_table(overall, SETTING, text).with_columns(scope), counts, SETTING)
    first, *columns = (heading for heading in HEADINGS.values() if heading in table.columns)
    # The interval is that of Acc@1.
    return table.select(*SETTING, "scope", first, _INTERVAL, *columns, "prompts", "failed")


def parts(metrics: pl.DataFrame) -> pl.DataFrame:
    """One row per popularity decile and sample of the facts, where the set has any: `part`."""
    rows = metrics.filter(pl.col("slice").str.contains("^(popularity|sample)="))
    rows = rows.rename({"slice": "part", "n": "prompts"})
    keys = [*SETTING, "part"]
    interval = shares_interval(f"Acc@1, {_INTERVAL}")
    intervals = rows.filter(metric=ACC_AT_1.name).select(*keys, interval)
    table = _table(rows, [*keys, "prompts"], as_printed("value", numbers=_NUMBERS))
    return pivot.join_columns(table, intervals, keys)


def _table(rows: pl.DataFrame, keys: Sequence[str], text: pl.Expr) -> pl.DataFrame:
    heading = pl.col("metric").replace_strict(HEADINGS, default=None)
    return pivot.pivot(rows.with_columns(text=text, heading=heading), keys, HEADINGS.values())


def card(metrics: pl.DataFrame) -> pl.DataFrame:
    """The same numbers for a narrow screen: one row per metric, one column per setting."""
    numbers = pivot.card(metrics, SHOWN, SHARE, row_variants=("draw", "prompts"))
    columns = pl.Series("column", numbers.columns[1:], dtype=pl.String).to_frame()
    scopes = columns.select("column", _scope(pl.col("column"), pl.col("column")))
    row = pl.DataFrame([{"metric": "scope", **dict(scopes.iter_rows())}])
    return pl.concat([row, numbers])


def _scope(setting: pl.Expr, variant: pl.Expr) -> pl.Expr:
    """The prompts that share demonstrations; a dash where there are none."""
    undefined = pl.when(~setting.str.contains(r"^\d")).then(pl.lit(DASH))
    per_prompt = undefined.when(variant.str.contains("scope=prompt")).then(pl.lit("prompt"))
    return per_prompt.otherwise(pl.lit("shared")).alias("scope")


EFFECTS = pl.Schema(
    {
        **dict.fromkeys(("effect", "from", "to", "paired", "not_paired"), pl.String()),
        **{name: dtype for name, dtype in COMPARISON.items() if name != "relation_id"},
    }
)
MOST_PAIRS = 24
_COMPARED = ("acc_at_1", "consist", "one_word_ratio", "coverage_oracle")
_PAIRED_HEADINGS = headings(PAIRED)
_DEFAULTS = {
    "style": "mask",
    "templates": "all",
    "scope": "shared",
    "as": "text",
    "system": "instruction",
}
_ROBUST = 0.9  # as `compare` has it: the metrics that are not shown count for p (Holm), too


class Pair(NamedTuple):
    """Two settings that differ in one thing, and the name of the difference."""

    effect: str
    first: ModelSetting
    second: ModelSetting


def effects(answers: Mapping[ModelSetting, Answers], *, n_rounds: int = 1000) -> pl.DataFrame:
    """Compare the first `MOST_PAIRS` of `pairs`, by prompt or else by fact: the table EFFECTS."""
    tables = [
        _effect(pair, answers[pair.first], answers[pair.second], n_rounds)
        for pair in list(pairs(answers))[:MOST_PAIRS]
    ]
    return pl.concat([EFFECTS.to_frame(), *tables])


def effects_table(rows: pl.DataFrame) -> pl.DataFrame:
    """The effects as texts, for people."""
    values = pl.col("metric").replace(_PAIRED_HEADINGS), number("first"), number("second")
    counts = {"facts": "n_pairs", "prompts": "n_prompts", "not paired": "not_paired"}
    return rows.select("effect", "from", "to", *values, **difference(), **counts)


def pairs(settings: Collection[ModelSetting]) -> Iterator[Pair]:
    """The settings that differ in one thing, the default first.

    - demonstrations: zero-shot, and with them; choice of demonstrations: two ways to choose them;
    - question style: mask style (of all or of the question templates) and question style;
    - templates: all, and a part of them; scope: demonstrations shared, and drawn for each prompt;
    - as: raw text, and a chat;
    - instruction tuning: a model `x` and its `x-it`; model: any other two.
    """
    order = {setting: place for place, setting in enumerate(settings)}
    found_pairs = [
        Pair(effect, *ordered_pair)
        for ordered_pair in permutations(settings, 2)
        if (effect := _effect_of(*ordered_pair)) is not None
    ]
    models = [pair for pair in found_pairs if pair.effect == "model"]
    yield from (pair for pair in found_pairs if pair.effect != "model")
    yield from (pair for pair in models if order[pair.first] < order[pair.second])


def _effect_of(first: ModelSetting, second: ModelSetting) -> str | None:
    """The one thing in which two settings differ; null: several, or the second is the default."""
    first_options, second_options = map(_options, (first, second))
    differing = {name for name in first_options if first_options[name] != second_options[name]}
    if first.model != second.model:
        if differing or first.setting != second.setting or first.model == f"{second.model}-it":
            return None
        return "instruction tuning" if second.model == f"{first.model}-it" else "model"
    if first.setting != second.setting:
        if first.setting == "zero-shot":  # which has no scope
            return "demonstrations" if differing <= {"scope"} else None
        is_first = second.setting != "zero-shot" and first.setting < second.setting
        return "choice of demonstrations" if is_first and not differing else None
    if second_options["style"] == "question" and first_options["style"] == "mask":
        # All templates of question style are question templates.
        alike = differing <= {"style", "templates"} and first_options["templates"] in (
            "all",
            "question",
        )
        return "question style" if alike else None
    if len(differing) != 1 or first_options[min(differing)] != _DEFAULTS[min(differing)]:
        return None
    return min(differing)


def _options(setting: ModelSetting) -> dict[str, str]:
    parts = (part.partition("=") for part in (setting.variant or "").split(",") if part)
    return _DEFAULTS | {name: value for name, _, value in parts}


def _effect(pair: Pair, first: Answers, second: Answers, n_rounds: int) -> pl.DataFrame:
    relations = [relation for relation in first.relations if relation in second.relations]
    both_answers = ((first.of(relation), second.of(relation)) for relation in relations)
    unit = unit_between(both_answers, templates_alone=pair.effect == "templates")
    terms, counts = [], []
    for relation in relations:
        tables = first.tables_of(relation), second.tables_of(relation)
        counts.append(count_shared(*(matched["answers"] for matched in tables)))
        terms.append(matched_terms(*tables, unit, _ROBUST))
    total = SharedCounts.total(counts)
    if not total.facts:
        return EFFECTS.to_frame()
    rows = compare(pl.concat(terms), seed=0, n_rounds=n_rounds)
    rows = adjust_p_values(rows, ACC_AT_1.name).filter(pl.col("metric").is_in(_COMPARED))
    constants = {
        "effect": pair.effect,
        "from": str(pair.first),
        "to": str(pair.second),
        "paired": total.sentence(unit),
        "not_paired": total.left_out(unit),
    }
    columns = [pl.lit(text).alias(name) for name, text in constants.items()]
    return (
        rows.filter(pl.col("relation_id").is_null()).with_columns(columns).select(EFFECTS.names())
    )


_ALONE_INCHES, _PANEL_INCHES = 4.0, 2.3
_MOST_IN_A_ROW = 4
_LETTERS_PER_INCH = 12  # of a legend
_DARK = 0.7  # where black text on the map's blue is no longer read with ease
_SHARES = {
    "acc_at_1": "mean prompt",
    "coverage_maximum": "best template",
    "coverage_oracle": "any prompt",
}


def calibration_figure(bins: pl.DataFrame, title: str) -> "Figure":
    """One panel per `panel` of the bins, one line per `series`; overconfident is below."""
    columns = ("mean_confidence", "mean_accuracy")
    labels = {"xlabel": "confidence", "ylabel": "Acc@1"}
    return _square_panels(bins, columns, title, diagonal="calibrated", **labels)


def risk_coverage_figure(bins: pl.DataFrame, title: str) -> "Figure":
    """One panel per `panel` of the bins, one line per `series`: coverage and risk; low is good."""
    curves = [risk_coverage(rows) for rows in bins.partition_by("panel", maintain_order=True)]
    labels = {"xlabel": "coverage", "ylabel": "share of wrong answers"}
    return _square_panels(pl.concat(curves), ("coverage", "risk"), title, **labels)


def _square_panels(
    points: pl.DataFrame,
    columns: tuple[str, str],
    title: str,
    *,
    xlabel: str,
    ylabel: str,
    diagonal: str | None = None,
) -> "Figure":
    panels = points["panel"].unique(maintain_order=True).to_list()
    names = points["series"].unique(maintain_order=True).to_list()
    n_columns = min(len(panels), _MOST_IN_A_ROW)
    n_rows = math.ceil(len(panels) / _MOST_IN_A_ROW)
    n_lines = len(names) + (diagonal is not None)
    side = _PANEL_INCHES if len(panels) > 1 else _ALONE_INCHES
    width = max(side * n_columns + 0.4, 3.4)
    fitting = int(width * _LETTERS_PER_INCH / (max(map(len, names)) + 6))
    legend_columns = max(1, min(fitting, max(2, min(n_lines, 2 * n_columns))))
    legend_rows = math.ceil(n_lines / legend_columns)
    height = (side + 0.2) * n_rows + 0.8 + 0.2 * legend_rows
    figure = canvas.new_figure(width, height)
    grid = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False).flatten()
    for axes, panel in zip(grid, panels, strict=False):
        if diagonal is not None:
            axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--", label=diagonal)
        rows = points.filter(panel=panel)
        canvas.curves(axes, rows, *columns, names=names, markersize=3.5, linewidth=1.2)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        axes.set_aspect("equal")
        axes.grid(color="0.92")
        axes.set_title(panel, fontsize="medium")
    ticks = [0, 0.5, 1] if len(panels) > 1 else np.linspace(0, 1, 6)
    grid[0].set(xticks=ticks, yticks=ticks)  # which all panels share
    for axes in grid[len(panels) :]:
        axes.remove()
    # The axes above a removed one are the lowest of their column.
    for axes in grid[len(panels) - n_columns : len(panels)]:
        axes.tick_params(labelbottom=True)
        axes.set_xlabel(xlabel)
    for axes in grid[::n_columns]:
        axes.set_ylabel(ylabel)
    lines = {str(line.get_label()): line for axes in grid for line in axes.lines}
    canvas.legend_below(figure, legend_columns, handles=lines.values())
    if len(panels) > 1:
        figure.suptitle(title)
    return figure


ORDER = "confidence=entropy"  # in a variant: kinds that are no probabilities
KIND = ",?confidence=([a-z_]+(?:,cluster=[a-z]+)?)"  # in a variant
_COMPARED_KINDS = ("auroc", "prr")


def kinds(metrics: pl.DataFrame) -> pl.DataFrame:
    """One row per setting and kind of confidence, with intervals: `prompts` have the kind."""
    headings_by_name = headings(CONFIDENCE)
    rows = metrics.filter(pl.col("slice").is_null(), pl.col("metric").is_in(list(headings_by_name)))
    variant, name = pl.col("variant"), pl.col("metric")
    rows = rows.with_columns(
        confidence=variant.str.extract(KIND).fill_null("samples"),
        variant=variant.str.replace(KIND, "").replace("", None),
        heading=name.replace_strict(headings_by_name),
        text=pl.concat_str(as_printed("value", numbers=_NUMBERS), interval_as_printed(_NUMBERS)),
    )
    keys = [*SETTING, "confidence"]
    counts = rows.filter(metric=AUROC.name).select(*keys, prompts="n", failed="n_failed")
    table = pivot.pivot(rows, keys, headings_by_name.values())
    return pivot.join_columns(table, counts, keys)


def kind_differences(differences: pl.DataFrame) -> pl.DataFrame:
    """One row per metric and two kinds of confidence, as texts; `prompts` have both kinds."""
    rows = differences.filter(pl.col("metric").is_in(list(_COMPARED_KINDS)))
    rows = rows.drop_nulls("difference").sort(
        pl.col("metric").cast(pl.Enum(_COMPARED_KINDS)), maintain_order=True
    )
    names = {f"{place} confidence": f"{place}_kind" for place in ("first", "second")}
    values = {name: SHARE.column_with_dashes(pl.col(name)) for name in ("first", "second")}
    interval = SHARE.interval(" to ", signed=True).fill_null(DASH)
    paired = {"difference": number("difference", signed=True), _INTERVAL: interval}
    heading = pl.col("metric").replace(HEADINGS)
    return rows.select(*SETTING, heading, **names, **values, **paired, prompts="n")


def coverage(metrics: pl.DataFrame) -> pl.DataFrame:
    """The shares of each run that has all three: run, metric, value, ci_low, ci_high."""
    rows = metrics.filter(pl.col("slice").is_null(), pl.col("metric").is_in(list(_SHARES)))
    run = pivot.join_names("model", "setting", "variant").alias("run")
    rows = rows.drop_nulls("value").select(run, "metric", "value", "ci_low", "ci_high")
    return rows.filter(pl.col("metric").n_unique().over("run") == len(_SHARES))


def coverage_figure(shares: pl.DataFrame) -> "Figure":
    """One row per run (`coverage`): three marks on the scale from 0 to 1, with 95 % intervals."""
    runs = shares["run"].unique(maintain_order=True).to_list()
    figure, axes = canvas.new_row_frame(
        runs, 5.2, 0.3, 1.2, xlabel="share of facts", xlim=(-0.02, 1.02)
    )
    for (metric, label), (colour, marker) in zip(_SHARES.items(), SERIES, strict=False):
        rows = shares.filter(metric=metric)
        places = [runs.index(run) for run in rows["run"]]
        low, high = (rows[name].fill_null(rows["value"]) for name in ("ci_low", "ci_high"))
        axes.hlines(places, low, high, color=colour, linewidth=1.2)
        axes.plot(rows["value"], places, marker, color=colour, markersize=5.5, label=label)
    canvas.legend_below(figure, 3)
    return figure


def knowledge_sharing_figure(shares: pl.DataFrame, title: str) -> "Figure":
    """One square per pair of runs: the share of the left run's knowledge that the top run has.

    `shares` has run, other and value; undefined shares are grey, with a dash.
    """
    run_names = pl.concat([shares["run"], shares["other"].alias("run")])
    runs = run_names.unique(maintain_order=True).to_list()
    values = dict(zip(shares.select("run", "other").rows(), shares["value"], strict=True))
    square = [[values.get((run, column)) for column in runs] for run in runs]
    side = 0.55 * len(runs) + 1.8
    figure = canvas.new_figure(side, side + 0.6)
    axes = figure.add_subplot()
    axes.set_facecolor("0.85")
    axes.imshow(np.array(square, dtype=float), cmap="Blues", vmin=0, vmax=1)
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "small"}
    for (y, x), value in np.ndenumerate(np.array(square, dtype=object)):
        colour = "white" if value is not None and value > _DARK else "black"
        axes.text(x, y, SHORT_SHARE.text(value), color=colour, **look)
    places = range(len(runs))
    axes.set_xticks(places, runs, rotation=90)
    axes.set_yticks(places, runs)
    axes.tick_params(top=True, bottom=False, labeltop=True, labelbottom=False, length=0)
    axes.spines[:].set_visible(False)
    caption = "of what the left one knows,\nthe share that the top one knows"
    figure.supxlabel(caption, fontsize="small")
    figure.suptitle(title)
    return figure


def spread_by_relation(
    metrics: pl.DataFrame, relation_labels: Mapping[str, str] = MappingProxyType({})
) -> pl.DataFrame:
    """The accuracy of each relation's worst, mean and best template in one run, the best first."""
    relation_id = pivot.relation_id()
    relation = pivot.relation_name(relation_id, pivot.label_of(relation_id, relation_labels))
    part = pl.col("metric").str.strip_prefix("template_spread_")
    rows = metrics.filter(pivot.is_relation()).select("value", relation=relation, part=part)
    columns = ("min", "mean", "max")
    table = rows.pivot(
        "part", columns, index="relation", values="value", aggregate_function="first"
    )
    return table.drop_nulls().sort("mean", "relation", descending=[True, False])


def template_spread_figure(spread: pl.DataFrame, title: str) -> "Figure":
    """One bar per relation (`spread_by_relation`), worst to best template, and the mean."""
    labels = {"xlabel": "Acc@1 of a template", "title": title, "xlim": (-0.02, 1.02)}
    figure, axes = canvas.new_row_frame(spread["relation"].to_list(), 5.2, 0.19, 1.3, **labels)
    places = range(spread.height)
    (bar, _), (dot, marker) = SERIES[:2]
    width = spread["max"] - spread["min"]
    axes.barh(places, width, 0.5, spread["min"], color=bar, alpha=0.35, label="worst to best")
    axes.plot(spread["mean"], places, marker, color=dot, markersize=4.5, label="mean")
    canvas.legend_below(figure, 2)
    return figure
