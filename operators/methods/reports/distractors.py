"""What is written and shown of the distractor measure's numbers."""

import polars as pl

from factsweep.operators.datasets.facts import Facts, with_right_labels
from factsweep.operators.methods import method
from factsweep.operators.tables.distractors import distractors as tables
from factsweep.operators.tables.distractors import figures


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
    taus, drawn = result.tables["agreement"], _figures(result)
    if not taus.is_empty():
        table = tables.agreement(metrics, published)
        found |= {"table-3": table, "missing": tables.missing(table)}
        found["configurations"] = tables.configurations(taus)
    if not result.tables["robustness"].is_empty():
        found["table-4"] = tables.robust(metrics, published)
    found |= {name: each.table for name, each in drawn.items()}
    shown = {name: table for name, table in found.items() if table.height}
    pictures = {name: each.figure for name, each in drawn.items()}
    titles = {name: each.heading for name, each in drawn.items()}
    return method.Report(shown, pictures, {**tables.TITLES, **titles})


def _figures(result: method.Result) -> dict[str, figures.Drawn]:
    """Figures 1 to 6 and 8, as far as the runs have points for them."""
    curves, taus = result.tables["curve"], result.tables["agreement"]
    found: dict[str, figures.Drawn] = {}
    for (sample,), rows in curves.group_by("sample", maintain_order=True):
        found |= figures.drawn("retrieval", figures.retrieval_points(rows), sample)
    optimal = curves.filter(pl.col("sample").is_null(), setting="optimal")
    if optimal["model"].n_unique() > 1:
        found |= figures.drawn("model-size", figures.size_points(optimal))
        found |= figures.drawn_sizes(figures.sizes(result.tables["metrics"], result.costs))
    if not taus.is_empty():
        by_clozes = figures.cloze_points(taus)
        found |= figures.drawn("n-distractors", figures.distractor_points(taus))
        found |= figures.drawn("n-clozes", by_clozes)
        found |= figures.drawn("gains", figures.gains(by_clozes))
    return found


def digest(facts: Facts, answers: pl.DataFrame) -> method.Digest:
    """The hardest distractors of each fact, over its clozes, with the right answer among them."""
    answers = answers.with_columns(asked=pl.lit(None, pl.String))
    share = pl.col("n_beaten").list.last() / pl.col("n_distractors")
    found = answers.group_by("pair_id", "asked", maintain_order=True).agg(
        share=share.mean(), n=pl.len()
    )
    columns = ["pair_id", "asked", "label", "logprob"]
    wrong = answers.select("pair_id", "asked", "hardest").explode("hardest").drop_nulls("hardest")
    right = answers.select(*columns, right=pl.lit(value=True))
    both = [right, wrong.unnest("hardest").select(*columns, right=pl.lit(value=False))]
    each = pl.concat(both).group_by("pair_id", "asked", "label", "right", maintain_order=True)
    best = each.agg(pl.max("logprob"))
    ordered = best.sort("pair_id", "logprob", "label", descending=[False, True, False])
    nats = pl.format("{} nats", pl.col("logprob").round(1))
    replies = ordered.select("pair_id", "asked", "right", answer="label", note=nats)
    return method.Digest(with_right_labels(found, facts.pairs), replies)
