"""What is written and shown of the distractor measure's numbers."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import polars as pl

from factsweep.operators.datasets.facts import Facts, with_right_labels
from factsweep.operators.methods import method
from factsweep.operators.tables.distractors import distractors as tables
from factsweep.operators.tables.distractors import figures
from factsweep.operators.tables.distractors.figures import Axes, lines_figure
from factsweep.operators.tables.shared.canvas import Figure

_RETRIEVAL = "retrieval"  # Figures 1 and 2


def report(result: method.Result) -> method.Report:
    """The paper's tables and figures, as far as the runs have numbers for them."""
    metrics, published = result.tables["metrics"], result.published
    labels = dict(result.facts.relations.select("relation_id", "label").iter_rows())
    found = {
        "headline": tables.headline(metrics),
        "relations": tables.by_relation(metrics, labels),
        "popularity": tables.by_slice(metrics, "popularity", "decile"),
        "samples": tables.by_sample(metrics, published),
        "tokens": tables.by_slice(metrics, "tokens", "tokens"),
    }
    drawn = {**_retrievals(result.tables["curve"]), **_sizes(result)}
    if not result.tables["agreement"].is_empty():
        taus = result.tables["agreement"]
        table = tables.agreement(metrics, published)
        found |= {"table-3": table, "missing": tables.missing(table)}
        found["configurations"] = tables.configurations(taus)
        drawn |= _agreement(taus)
    if not result.tables["robustness"].is_empty():
        found["table-4"] = tables.robust(metrics, published)
    found |= {name: each.table for name, each in drawn.items()}
    shown = {name: table for name, table in found.items() if table.height}
    pictures = {name: each.figure for name, each in drawn.items()}
    return method.Report(shown, pictures, _titles(drawn))


def _titles(drawn: Iterable[str]) -> Mapping[str, str]:
    """Every title; a figure of a sample has that of the whole, and the sample's name."""
    samples = (name for name in drawn if name.startswith(f"{_RETRIEVAL}-"))
    whole = figures.TITLES[_RETRIEVAL]
    named = {name: f"{whole}: {name.removeprefix(_RETRIEVAL + '-')}" for name in samples}
    return {**tables.TITLES, **figures.TITLES, **named}


class _Drawn(NamedTuple):
    """A figure, and its numbers."""

    table: pl.DataFrame
    figure: "Figure"


def _drawn(name: str, points: pl.DataFrame, axes: Axes) -> dict[str, _Drawn]:
    """The figure by its name; nothing where there is no point to draw."""
    if points["y"].drop_nulls().is_empty():
        return {}
    return {name: _Drawn(figures.wide(points, axes.x), lines_figure(points, axes))}


def _retrievals(curves: pl.DataFrame) -> dict[str, _Drawn]:
    """Figures 1 and 2: over all facts, and over each sample."""
    axes = Axes("distractors", "Min@n in %", "Min@n")
    found: dict[str, _Drawn] = {}
    for (sample,), rows in curves.group_by("sample", maintain_order=True):
        name = _RETRIEVAL if sample is None else f"{_RETRIEVAL}-{sample}"
        title = axes.title if sample is None else f"Min@n, {sample}"
        found |= _drawn(name, figures.retrieval_points(rows), axes._replace(title=title))
    return found


def _sizes(result: method.Result) -> dict[str, _Drawn]:
    """Figures 5 and 8, of several models with optimal distractors."""
    curves = result.tables["curve"].filter(pl.col("sample").is_null(), setting="optimal")
    if curves["model"].n_unique() < 2:
        return {}
    axes = Axes("distractors", "Avg@n in %", "Avg@n, optimal distractors")
    sizes = figures.sizes(result.tables["metrics"], result.costs)
    extrapolated = _Drawn(figures.sizes_table(sizes), figures.sizes_figure(sizes))
    drawn = _drawn("model-size", figures.size_points(curves), axes)
    return drawn | ({"extrapolation": extrapolated} if sizes.points.height else {})


def _agreement(taus: pl.DataFrame) -> dict[str, _Drawn]:
    """Figures 3, 4 and 6."""
    tau = "Kendall's τ-b, mean of folds"
    by_n, by_clozes = figures.distractor_points(taus), figures.cloze_points(taus)
    gains = figures.gains(by_clozes)
    title = "Agreement with people"
    return {
        **_drawn("n-distractors", by_n, Axes("distractors", tau, title)),
        **_drawn("n-clozes", by_clozes, Axes("clozes", tau, title)),
        **_drawn("gains", gains, Axes("clozes", "(1 + τ) / (1 + τ of one)", "Gain by clozes")),
    }


def digest(facts: Facts, answers: pl.DataFrame) -> method.Digest:
    """The hardest distractors of each fact, over its clozes, with the right answer among them."""
    answers = answers.with_columns(asked=pl.lit(None, pl.String))
    share = pl.col("n_beaten").list.last() / pl.col("n_distractors")
    found = answers.group_by("pair_id", "asked", maintain_order=True).agg(
        share=share.mean(), n=pl.len()
    )
    columns = ["pair_id", "asked", "label", "logprob"]
    wrong = answers.select("pair_id", "asked", "hardest").explode("hardest").drop_nulls("hardest")
    wrong = wrong.unnest("hardest").select(columns)
    both = [
        rows.with_columns(right=pl.lit(right))
        for rows, right in ((answers.select(columns), True), (wrong, False))
    ]
    replies = (
        pl.concat(both)
        .group_by("pair_id", "asked", "label", "right", maintain_order=True)
        .agg(pl.max("logprob"))
        .sort("pair_id", "logprob", "label", descending=[False, True, False])
        .select(
            "pair_id",
            "asked",
            "right",
            answer="label",
            note=pl.format("{} nats", pl.col("logprob").round(1)),
        )
    )
    return method.Digest(with_right_labels(found, facts.pairs), replies)
