"""PRobELM: candidates of a group ranked by the likelihood of a text that names them."""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from operators.datasets.facts import Facts, sliced
from operators.datasets.probelm import candidates
from operators.methods.method import Evidence, Matcher, Method, Report, Result
from operators.metrics.permutation import permutation_difference
from operators.metrics.probelm import probelm
from operators.prompts.plausibility import Plausibility, expand
from operators.tables import probelm as tables
from operators.tables.probelm_figure import frames_figure

_ITEM_ID = r"^(?<candidate_id>.*)\.(?<setting>[a-z]+)$"


def _matcher(_facts: Facts, _pipeline: str, _tokenizer: Callable[[], Any]) -> Matcher:
    """The scores under the names of candidates and prompt types, which an item's id holds."""
    named = pl.col("prompt_id").str.extract_groups(_ITEM_ID).alias("named")
    return lambda answers, _further: {"scored": answers.with_columns(named).unnest("named")}


def _measure(evidence: Evidence) -> Mapping[str, pl.DataFrame]:
    metrics = probelm(
        evidence.tables["scored"],
        candidates(evidence.facts.pairs),
        seed=evidence.seed,
        n_rounds=evidence.n_rounds,
    )
    return {"metrics": metrics}


def _report(result: Result) -> Report:
    metrics, published, cutoffs = result.tables["metrics"], result.published, result.cutoffs
    labels = dict(result.facts.relations.select("relation_id", "label").iter_rows())
    by_frame = tables.by_frame(metrics, published, cutoffs)
    found = {
        "overview": tables.overview(metrics, candidates(result.facts.pairs), cutoffs),
        "headline": tables.headline(metrics, published, cutoffs),
        "frames": by_frame,
        "ranking": tables.ranking(by_frame),
        "relations": tables.by_relation(metrics, labels),
        "agreement": tables.agreement(metrics),
    }
    frames = tables.over_frames(metrics).filter(pl.col("variant").is_null())
    if frames.is_empty():  # plausibility needs all prompt types
        return Report(found)
    series = frames.with_columns(series="model")
    figure = frames_figure(series, "plausibility over time frames", cutoffs)
    return Report(found, {"frames": figure})


def _twice(first: pl.DataFrame, again: pl.DataFrame) -> pl.DataFrame:
    named = (rows.rename({"prompt_id": "item_id"}) for rows in (first, again))
    return permutation_difference(*named)


METHOD = Method(
    setting=Plausibility,
    sliced=sliced,
    expand=expand,
    matched=("scored",),
    matcher=_matcher,
    versions=lambda _pipeline: {},
    measured=("metrics",),
    measure=_measure,
    report=_report,
    card=tables.card,
    main_metric="accuracy",
    published="probelm",
    ability="score",
    twice=_twice,
)
