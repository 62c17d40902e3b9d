"""The tables and figures of BELIEF: settings and metrics, effects of one change, calibration."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import permutations
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.metrics.belief.answers import ACC_AT_1
from factsweep.operators.metrics.belief.belief import METRICS
from factsweep.operators.metrics.comparing.comparison import COMPARISON, compare
from factsweep.operators.metrics.comparing.paired import METRICS as PAIRED
from factsweep.operators.metrics.comparing.paired import Shared, paired_terms, shared, unit_between
from factsweep.operators.metrics.noise import CUT_SHARE, FLIP_RATE
from factsweep.operators.metrics.shared.metric import headings
from factsweep.operators.schemas import SETTING
from factsweep.operators.tables.shared import canvas
from factsweep.operators.tables.shared.canvas import SERIES, Figure
from factsweep.operators.tables.shared.numbers import DASH, SHARE, SHORT_SHARE, difference, number
from factsweep.operators.tables.shared.wide import (
    Answers,
    Asking,
    called,
    is_relation,
    joined,
    label_of,
    named,
    relation_id,
    spread,
    wide,
)
from factsweep.operators.tables.shared.wide import card as card_of

SHOWN = (*METRICS, CUT_SHARE, FLIP_RATE)
HEADINGS = headings(SHOWN)
_INTERVAL = "95 % interval"


def headline(metrics: pl.DataFrame) -> pl.DataFrame:
    """One row per model, benchmark, setting and variant, as texts; several seeds are mean ± SD."""
    overall = metrics.filter(pl.col("slice").is_null())
    text = pl.concat_str(SHARE.dashed(pl.col("value")), spread(overall, SHARE))
    counts = overall.filter(metric=ACC_AT_1.name).select(
        *SETTING, SHARE.interval().fill_null(DASH).alias(_INTERVAL), prompts="n", failed="n_failed"
    )
    scope = _scope(pl.col("setting"), pl.col("variant"))
    table = joined(_table(overall, SETTING, text).with_columns(scope), counts, SETTING)
    first, *others = (each for each in HEADINGS.values() if each in table.columns)
    # The interval is that of Acc@1.
    return table.select(*SETTING, "scope", first, _INTERVAL, *others, "prompts", "failed")


def parts(metrics: pl.DataFrame) -> pl.DataFrame:
    """One row per popularity decile and sample of the facts, where the set has any: `part`."""
    found = metrics.filter(pl.col("slice").str.contains("^(popularity|sample)="))
    found = found.rename({"slice": "part", "n": "prompts"})
    keys = [*SETTING, "part"]
    interval = found.filter(metric=ACC_AT_1.name).select(
        *keys, SHARE.interval().fill_null(DASH).alias(f"Acc@1, {_INTERVAL}")
    )
    table = _table(found, [*keys, "prompts"], SHARE.dashed(pl.col("value")))
    return joined(table, interval, keys)


def _table(rows: pl.DataFrame, keys: Sequence[str], text: pl.Expr) -> pl.DataFrame:
    heading = pl.col("metric").replace_strict(HEADINGS, default=None)
    return wide(rows.with_columns(text=text, heading=heading), keys, HEADINGS.values())


def card(metrics: pl.DataFrame) -> pl.DataFrame:
    """The same numbers for a narrow screen: one row per metric, one column per setting."""
    numbers = card_of(metrics, HEADINGS, SHARE, own=("draw", "prompts"))
    asked = pl.Series("asked", numbers.columns[1:], dtype=pl.String).to_frame()  # with variants
    scopes = asked.select("asked", _scope(pl.col("asked"), pl.col("asked")))
    row = pl.DataFrame([{"metric": "scope", **dict(scopes.iter_rows())}])
    return pl.concat([row, numbers])


def _scope(setting: pl.Expr, variant: pl.Expr) -> pl.Expr:
    """For how many prompts a demonstration was drawn; a dash where there are none."""
    none = pl.when(~setting.str.contains(r"^\d")).then(pl.lit(DASH))
    own = none.when(variant.str.contains("scope=prompt")).then(pl.lit("prompt"))
    return own.otherwise(pl.lit("shared")).alias("scope")


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
_ROBUST = 0.9  # coverage_robust is no row of the table


class Pair(NamedTuple):
    """Two settings that differ in one thing, and what that is called."""

    effect: str
    first: Asking
    second: Asking


def effects(answers: Mapping[Asking, Answers], *, n_rounds: int = 1000) -> pl.DataFrame:
    """Compare the first `MOST_PAIRS` of `pairs`, by prompt or else by fact: the table EFFECTS."""
    tables = [
        _effect(each, answers[each.first], answers[each.second], n_rounds)
        for each in list(pairs(answers))[:MOST_PAIRS]
    ]
    return pl.concat([EFFECTS.to_frame(), *tables])


def effects_table(found: pl.DataFrame) -> pl.DataFrame:
    """The effects as texts, for people."""
    values = pl.col("metric").replace(_PAIRED_HEADINGS), number("first"), number("second")
    counts = {"facts": "n_pairs", "prompts": "n_prompts", "not paired": "not_paired"}
    return found.select("effect", "from", "to", *values, **difference(), **counts)


def pairs(runs: Collection[Asking]) -> Iterator[Pair]:
    """The settings that differ in one thing, the one without it first.

    - demonstrations: zero-shot, and with them; choice of demonstrations: two ways to choose them;
    - question style: mask style (of all or of the question templates) and question style;
    - templates: all, and a part of them; scope: demonstrations shared, and drawn for each prompt;
    - as: raw text, and a chat;
    - instruction tuning: a model `x` and its `x-it`; model: any other two.
    """
    order = {run: place for place, run in enumerate(runs)}
    found = [Pair(effect, *both) for both in permutations(runs, 2) if (effect := _effect_of(*both))]
    models = [each for each in found if each.effect == "model"]
    yield from (each for each in found if each.effect != "model")
    yield from (each for each in models if order[each.first] < order[each.second])


def _effect_of(one: Asking, other: Asking) -> str | None:
    """What two settings differ in, if it is one thing and the first is the one without it."""
    before, after = _words(one), _words(other)
    differing = {name for name in before if before[name] != after[name]}
    if one.model != other.model:
        if differing or one.setting != other.setting or one.model == f"{other.model}-it":
            return None
        return "instruction tuning" if other.model == f"{one.model}-it" else "model"
    if one.setting != other.setting:
        return _effect_of_demonstrations(one, other, differing)
    if after["style"] == "question" and before["style"] == "mask":
        # All templates of question style are question templates.
        alike = differing <= {"style", "templates"} and before["templates"] in ("all", "question")
        return "question style" if alike else None
    if len(differing) != 1 or before[min(differing)] != _DEFAULTS[min(differing)]:
        return None
    return min(differing)


def _effect_of_demonstrations(one: Asking, other: Asking, differing: set[str]) -> str | None:
    if one.setting == "zero-shot":  # which has no scope
        return "demonstrations" if differing <= {"scope"} else None
    if other.setting == "zero-shot" or differing or one.setting > other.setting:
        return None
    return "choice of demonstrations"


def _words(run: Asking) -> dict[str, str]:
    parts = (part.partition("=") for part in (run.variant or "").split(",") if part)
    return _DEFAULTS | {name: value for name, _, value in parts}


def _effect(pair: Pair, first: Answers, second: Answers, n_rounds: int) -> pl.DataFrame:
    relations = [each for each in first.relations if each in second.relations]
    parts = ((first.of(each), second.of(each)) for each in relations)
    unit = unit_between(parts, templates_alone=pair.effect == "templates")
    terms, counts = [], []
    for each in relations:
        one, other = first.of(each), second.of(each)
        counts.append(shared(one, other))
        terms.append(paired_terms(one, other, robust_share=_ROBUST, unit=unit))
    found = Shared.total(counts)
    if not found.facts:
        return EFFECTS.to_frame()
    mine = pl.concat(terms).filter(pl.col("metric").is_in(_COMPARED))
    rows = compare(mine, seed=0, n_rounds=n_rounds).filter(pl.col("relation_id").is_null())
    named = {"effect": pair.effect, "from": str(pair.first), "to": str(pair.second)}
    named |= {"paired": found.sentence(unit), "not_paired": found.left_out(unit)}
    return rows.with_columns(pl.lit(v).alias(n) for n, v in named.items()).select(EFFECTS.names())


_ALONE_INCHES, _PANEL_INCHES = 4.0, 2.3
_MOST_IN_A_ROW = 4
_DARK = 0.7  # where black text on the map's blue is no longer read with ease
_SHARES = {
    "acc_at_1": "mean prompt",
    "coverage_maximum": "best template",
    "coverage_oracle": "any prompt",
}


def calibration_figure(bins: pl.DataFrame, title: str) -> "Figure":
    """One panel per `panel` of the bins, one line per `series`; overconfident is below."""
    panels = bins["panel"].unique(maintain_order=True).to_list()
    names = bins["series"].unique(maintain_order=True).to_list()
    n_columns = min(len(panels), _MOST_IN_A_ROW)
    n_rows = math.ceil(len(panels) / _MOST_IN_A_ROW)
    legend_columns = max(2, min(len(names) + 1, 2 * n_columns))
    legend_rows = math.ceil((len(names) + 1) / legend_columns)
    side = _PANEL_INCHES if len(panels) > 1 else _ALONE_INCHES
    height = (side + 0.2) * n_rows + 0.8 + 0.2 * legend_rows
    figure = canvas.blank(max(side * n_columns + 0.4, 3.4), height)
    grid = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False).flatten()
    for axes, panel in zip(grid, panels, strict=False):
        axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--", label="calibrated")
        rows, x, y = bins.filter(panel=panel), "mean_confidence", "mean_accuracy"
        canvas.curves(axes, rows, x, y, names=names, markersize=3.5, linewidth=1.2)
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
        axes.set_xlabel("confidence")
    for axes in grid[::n_columns]:
        axes.set_ylabel("Acc@1")
    lines = {str(line.get_label()): line for axes in grid for line in axes.lines}
    canvas.below(figure, legend_columns, handles=lines.values())
    if len(panels) > 1:
        figure.suptitle(title)
    return figure


def coverage(metrics: pl.DataFrame) -> pl.DataFrame:
    """The shares of each run that has all three: run, metric, value, ci_low, ci_high."""
    rows = metrics.filter(pl.col("slice").is_null(), pl.col("metric").is_in(list(_SHARES)))
    run = called("model", "setting", "variant").alias("run")
    rows = rows.drop_nulls("value").select(run, "metric", "value", "ci_low", "ci_high")
    return rows.filter(pl.col("metric").n_unique().over("run") == len(_SHARES))


def coverage_figure(shares: pl.DataFrame) -> "Figure":
    """One row per run (`coverage`): three marks on the scale from 0 to 1, with 95 % intervals."""
    runs = shares["run"].unique(maintain_order=True).to_list()
    figure, axes = canvas.in_rows(runs, 5.2, 0.3, 1.2, xlabel="share of facts", xlim=(-0.02, 1.02))
    for (metric, label), (colour, marker) in zip(_SHARES.items(), SERIES, strict=False):
        rows = shares.filter(metric=metric)
        places = [runs.index(run) for run in rows["run"]]
        low, high = (rows[name].fill_null(rows["value"]) for name in ("ci_low", "ci_high"))
        axes.hlines(places, low, high, color=colour, linewidth=1.2)
        axes.plot(rows["value"], places, marker, color=colour, markersize=5.5, label=label)
    canvas.below(figure, 3)
    return figure


def knowledge_sharing_figure(shares: pl.DataFrame, title: str) -> "Figure":
    """One square per pair of runs: the share of the left run's knowledge that the top run has.

    `shares` has run, other and value. What was not measured is grey, with a dash.
    """
    both = pl.concat([shares["run"], shares["other"].alias("run")])
    runs = both.unique(maintain_order=True).to_list()
    values = dict(zip(shares.select("run", "other").rows(), shares["value"], strict=True))
    square = [[values.get((run, other)) for other in runs] for run in runs]
    side = 0.55 * len(runs) + 1.8
    figure = canvas.blank(side, side + 0.6)
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
    said = "of what the left one knows,\nthe share that the top one knows"
    figure.supxlabel(said, fontsize="small")
    figure.suptitle(title)
    return figure


def spread_by_relation(
    metrics: pl.DataFrame, relation_labels: Mapping[str, str] = MappingProxyType({})
) -> pl.DataFrame:
    """The accuracy of each relation's worst, mean and best template in one run, the best first."""
    relation = named(relation_id(), label_of(relation_id(), relation_labels))
    part = pl.col("metric").str.strip_prefix("template_spread_")
    rows = metrics.filter(is_relation()).select("value", relation=relation, part=part)
    parts = ("min", "mean", "max")
    table = rows.pivot("part", parts, index="relation", values="value", aggregate_function="first")
    return table.drop_nulls().sort("mean", "relation", descending=[True, False])


def template_spread_figure(spread: pl.DataFrame, title: str) -> "Figure":
    """One bar per relation (`spread_by_relation`), worst to best template, and the mean."""
    labels = {"xlabel": "Acc@1 of a template", "title": title, "xlim": (-0.02, 1.02)}
    figure, axes = canvas.in_rows(spread["relation"].to_list(), 5.2, 0.19, 1.3, **labels)
    places = range(spread.height)
    (bar, _), (dot, marker) = SERIES[:2]
    width = spread["max"] - spread["min"]
    axes.barh(places, width, 0.5, spread["min"], color=bar, alpha=0.35, label="worst to best")
    axes.plot(spread["mean"], places, marker, color=dot, markersize=4.5, label="mean")
    canvas.below(figure, 2)
    return figure
