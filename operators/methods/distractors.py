"""Distractors: whether a model prefers the right answer of a cloze to plausible wrong ones."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import polars as pl
from pydantic import Field

from factsweep.operators.datasets.distractors import VERBALISED
from factsweep.operators.datasets.facts import Facts, add_right_labels
from factsweep.operators.datasets.facts import slice_single_objects as sliced
from factsweep.operators.engines.auxiliary_models import BertScore
from factsweep.operators.engines.endpoint.openai_client import Judge, OpenAIChat, key
from factsweep.operators.errors import InputError
from factsweep.operators.matching.preferred import add_beaten
from factsweep.operators.methods import method
from factsweep.operators.methods.method import PREFER
from factsweep.operators.metrics.belief.knowledge_state import evidence
from factsweep.operators.metrics.comparing.paired import mark_known, paired_preferences
from factsweep.operators.metrics.distractors import agreement, baselines, distractors
from factsweep.operators.metrics.shared.rows import samples
from factsweep.operators.prompts.clozes import Distractors, clozes, expand
from factsweep.operators.schemas import empty
from factsweep.operators.tables import distractors as tables


@dataclass(frozen=True)
class Options:
    """The bootstrap rounds, and the readers of continuations (conf/metrics/).

    `encoder` is the model of BERTScore (a folder, or an id on the hub), `judge_url` and
    `judge_model` an OpenAI-compatible endpoint and its model; its key is OPENAI_API_KEY. Null: that
    measure is left out.
    """

    n_rounds: Annotated[int, Field(ge=1, le=1_000_000)]
    encoder: str | None
    judge_url: str | None
    judge_model: str | None

    def __post_init__(self) -> None:
        """Refuse a judge without URL or model."""
        if (self.judge_url is None) != (self.judge_model is None):
            raise InputError("metrics.judge_url and metrics.judge_model go together; give both.")

    @property
    def judge(self) -> Judge | None:
        """The configured judge, or None."""
        if self.judge_url is None or self.judge_model is None:
            return None
        return Judge(OpenAIChat(self.judge_url, self.judge_model, key(), temperature=0.0))


def _matcher(_facts: Facts, _pipeline: str, _tokenizer: Callable[[], Any]) -> method.Matcher:
    def match(answers: pl.DataFrame, extra_tables: method.Tables) -> method.Tables:
        columns = ["prompt_id", "relation_id", "pair_id", "template_id", "subject_index"]
        beams, chances = (
            answers.select(columns).join(extra_tables[table], on="prompt_id", maintain_order="left")
            for table in ("beams", "chances")
        )
        by_chance = chances.select(empty("by_chance").columns)
        return {"preferred": add_beaten(answers), "continued": beams, "by_chance": by_chance}

    return match


def _measure(evidence: method.Evidence) -> method.Tables:
    answers = evidence.tables["preferred"]
    details = evidence.facts.extra_tables["details"]
    continuations = pl.concat([distractors.VALUES.to_frame(), *_of_continuations(evidence)])
    karr = baselines.of_karr(answers, evidence.tables["by_chance"])
    preferences = distractors.of_distractors(answers), distractors.of_probability(answers)
    values = pl.concat([*preferences, karr, continuations])
    ratings = details.select("pair_id", rating="human_score")
    taus = agreement.agreement(values, ratings, seed=evidence.seed)
    verbalised = details.filter(sample=VERBALISED).select("pair_id")
    robustness = agreement.robustness(values.join(verbalised, on="pair_id", how="semi"))
    metrics = [
        distractors.distractors(answers, details, evidence.n_failed, **evidence.draws),
        baselines.baselines(continuations, evidence.n_failed, **evidence.draws),
        *([] if karr.is_empty() else [baselines.karr(karr, evidence.n_failed, **evidence.draws)]),
        agreement.agreement_rows(taus),
        agreement.robustness_rows(robustness),
    ]
    curves = [
        distractors.curve(rows).with_columns(sample=pl.lit(sample, pl.String))
        for sample, rows in ((None, answers), *samples(answers, details))
    ]
    return {
        "metrics": pl.concat(metrics),
        "curve": pl.concat(curves),
        "agreement": taus,
        "robustness": robustness,
    }


def _of_continuations(evidence: method.Evidence) -> Iterator[pl.DataFrame]:
    """The values of each cloze by each measure of continuations that has a reader."""
    continued, options = evidence.tables["continued"], evidence.options
    first_labels = pl.col("objects").list.first().struct.field("labels")
    labels = dict(evidence.facts.pairs.select("pair_id", first_labels).iter_rows())
    if continued.is_empty():
        return
    yield baselines.of_top_tokens(continued, labels)
    readers = {"rouge_l": baselines.rouge_l}
    if options.encoder is not None:
        readers["bertscore"] = BertScore(options.encoder)
    for measure, alike in readers.items():
        yield baselines.of_texts(continued, labels, measure, alike, baselines.WIDTHS)
    if options.judge is not None:
        relations = continued["relation_id"].unique(maintain_order=True)
        prompts = pl.concat([clozes(evidence.facts.of(relation)) for relation in relations])
        texts = dict(prompts.select("prompt_id", "query").iter_rows())
        yield baselines.of_judged(continued, labels, texts, options.judge)


def _report(result: method.Result) -> method.Report:
    metrics, published = result.tables["metrics"], result.published
    report_tables = {
        "headline": tables.headline(metrics),
        "relations": tables.by_relation(metrics, result.facts.labels),
        "popularity": tables.by_slice(metrics, "popularity", "decile"),
        "samples": tables.by_sample(metrics, published),
        "tokens": tables.by_slice(metrics, "tokens", "tokens"),
    }
    taus, figures = result.tables["agreement"], _figures(result)
    if not taus.is_empty():
        table = tables.agreement(metrics, published)
        report_tables |= {"table-3": table, "missing": tables.missing(table)}
        report_tables["configurations"] = tables.configurations(taus)
    if not result.tables["robustness"].is_empty():
        report_tables["table-4"] = tables.robust(metrics, published)
    report_tables |= {name: figure.table for name, figure in figures.items()}
    nonempty = {name: table for name, table in report_tables.items() if table.height}
    pictures = {name: figure.figure for name, figure in figures.items()}
    titles = {name: figure.heading for name, figure in figures.items()}
    return method.Report(nonempty, pictures, {**tables.TITLES, **titles})


def _figures(result: method.Result) -> dict[str, tables.FigureWithTable]:
    """Figures 1 to 6 and 8, as far as the runs have points for them."""
    curves, taus = result.tables["curve"], result.tables["agreement"]
    figures: dict[str, tables.FigureWithTable] = {}
    for (sample,), rows in curves.group_by("sample", maintain_order=True):
        figures |= tables.draw_figure("retrieval", tables.curve_points(rows, "min"), sample)
    optimal = curves.filter(pl.col("sample").is_null(), setting="optimal")
    if optimal["model"].n_unique() > 1:
        figures |= tables.draw_figure("model-size", tables.curve_points(optimal, "avg"))
        figures |= tables.draw_sizes(result.tables["metrics"], result.costs)
    if not taus.is_empty():
        by_clozes = tables.cloze_points(taus)
        figures |= tables.draw_figure("n-distractors", tables.distractor_points(taus))
        figures |= tables.draw_figure("n-clozes", by_clozes)
        figures |= tables.draw_figure("gains", tables.gains(by_clozes))
    return figures


def _digest(facts: Facts, answers: pl.DataFrame) -> method.Digest:
    """The hardest distractors of each fact, over its clozes, with the right answer among them."""
    answers = answers.with_columns(asked=pl.lit(None, pl.String))
    share = pl.col("n_beaten").list.last() / pl.col("n_distractors")
    shares = answers.group_by("pair_id", "asked", maintain_order=True)
    fact_rows = shares.agg(share=share.mean(), n=pl.len())
    columns = ["pair_id", "asked", "label", "logprob"]
    wrong = answers.select("pair_id", "asked", "hardest").explode("hardest").drop_nulls("hardest")
    right = answers.select(*columns, right=pl.lit(value=True))
    options = pl.concat(
        [right, wrong.unnest("hardest").select(*columns, right=pl.lit(value=False))]
    )
    by_label = options.group_by("pair_id", "asked", "label", "right", maintain_order=True)
    best = by_label.agg(pl.max("logprob"))
    ordered = best.sort("pair_id", "logprob", "label", descending=[False, True, False])
    nats = pl.format("{} nats", pl.col("logprob").round(1))
    replies = ordered.select("pair_id", "asked", "right", answer="label", note=nats)
    return method.Digest(add_right_labels(fact_rows, facts.pairs), replies)


METHOD = method.Method(
    ask=method.Ask(Distractors, expand, sliced, ability=PREFER),
    measure=method.Measure(
        version=3,  # 2: KaRR; 3: intervals of small relations
        matcher=_matcher,
        matched=("preferred", "continued", "by_chance"),
        compute=_measure,
        main_metric="min_at_1",
        options=Options,
        measured=("metrics", "curve", "agreement", "robustness"),
        metrics=(
            *distractors.METRICS,
            *baselines.METRICS,
            *baselines.KARR_METRICS,
            *agreement.METRICS,
        ),
    ),
    show=method.Show("distractors", _report, tables.card, _digest),
    compare=method.Compare(
        terms=lambda first, second, unit, _robust_share: paired_preferences(
            first["preferred"], second["preferred"], unit=unit
        )
    ),
    # A fact is right after a cloze where its answer beats all distractors.
    evidence=lambda tables, _facts: evidence(mark_known(tables["preferred"])),
)
