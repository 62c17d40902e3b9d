"""PRobELM: candidates of a group ranked by the likelihood of a text that names them."""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.probelm import candidates
from factsweep.operators.estimates.queries import probelm_estimates
from factsweep.operators.methods import method
from factsweep.operators.methods.method import SCORE
from factsweep.operators.metrics.probelm import METRICS, probelm
from factsweep.operators.prompts.plausibility import Plausibility, expand
from factsweep.operators.tables import probelm as tables

_ITEM_ID = r"^(?<candidate_id>.*)\.(?<setting>[a-z]+)$"

_TITLES: Mapping[str, str] = {
    "overview": "Models and time frames (Table 1)",
    "headline": "Each model on the first frame after its training data (Table 2)",
    "frames": "By time frame (Tables 4 to 7)",
    "ranking": "Models by plausibility (Table 3)",
    "relations": "By relation",
    "agreement": "Correlation of prompt types and of metrics (section 5.1)",
}


def _matcher(_facts: Facts, _pipeline: str, _tokenizer: Callable[[], Any]) -> method.Matcher:
    """The scores with candidate and prompt type, both read from an item's id."""
    ids = pl.col("prompt_id").str.extract_groups(_ITEM_ID).alias("named")
    return lambda answers, _further: {"scored": answers.with_columns(ids).unnest("named")}


def _measure(evidence: method.Evidence) -> method.Tables:
    groups = candidates(evidence.facts)
    return {"metrics": probelm(evidence.tables["scored"], groups, **evidence.draws)}


def _estimate(part: method.Part) -> pl.DataFrame:
    return probelm_estimates(part.answers, candidates(part.facts), part.pairs, **part.draws)


def _report(result: method.Result) -> method.Report:
    metrics, published, cutoffs = result.tables["metrics"], result.published, result.cutoffs
    by_frame = tables.by_frame(metrics, published, cutoffs)
    report_tables = {
        "overview": tables.overview(metrics, candidates(result.facts), cutoffs),
        "headline": tables.headline(metrics, published, cutoffs),
        "frames": by_frame,
        "ranking": tables.ranking(by_frame),
        "relations": tables.by_relation(metrics, result.facts.labels),
        "agreement": tables.agreement(metrics),
    }
    frames = tables.over_frames(metrics).filter(pl.col("variant").is_null())
    if frames.is_empty():  # plausibility needs all prompt types
        return method.Report(report_tables, titles=_TITLES)
    series = frames.with_columns(series="model")
    figure = tables.frames_figure(series, "plausibility over time frames", cutoffs)
    return method.Report(report_tables, {"frames": figure}, _TITLES)


def _digest(facts: Facts, scored: pl.DataFrame) -> method.Digest:
    """The candidates of each group, the likeliest first, for each prompt type."""
    labels = candidates(facts).select("candidate_id", "label", "is_positive")
    rows = scored.join(labels, on="candidate_id")
    rows = rows.sort("pair_id", "setting", "logprob", descending=[False, False, True])
    nats = pl.format("{} nats", pl.col("logprob").round(1))
    names = {"asked": "setting", "answer": "label", "right": "is_positive"}
    ranked = rows.select("pair_id", **names, note=nats)
    positive = pl.col("right")
    shares = ranked.group_by("pair_id", "asked", maintain_order=True).agg(
        share=1 / (pl.arg_where(positive).first() + 1),
        n=pl.lit(1),
        right=pl.col("answer").filter(positive),
    )
    return method.Digest(shares, ranked)


METHOD = method.Method(
    ask=method.Ask(Plausibility, expand, ability=SCORE),
    measure=method.Measure(
        version=2,  # 2: intervals of small relations
        matcher=_matcher,
        matched=("scored",),
        compute=_measure,
        main_metric="accuracy",
        metrics=METRICS,
        sampling=method.Sampling(_estimate, whole_pairs=True),
    ),
    show=method.Show("probelm", _report, tables.card, _digest),
)
