"""Distractors: whether a model prefers the right answer of a cloze to plausible wrong ones."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import polars as pl
from pydantic import Field

from factsweep.operators.datasets.entities import sliced
from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.sentences import VERBALISED
from factsweep.operators.engines.endpoint.judge import Judge
from factsweep.operators.engines.endpoint.openai_client import OpenAIChat, key
from factsweep.operators.engines.measuring.bert_score import BertScore
from factsweep.operators.errors import InputError
from factsweep.operators.matching.preferred import preferred
from factsweep.operators.methods import method
from factsweep.operators.methods.ability import PREFER
from factsweep.operators.methods.reports.distractors import digest, report
from factsweep.operators.metrics.belief.knowledge_state import evidence
from factsweep.operators.metrics.comparing.paired_preferences import known, paired_preferences
from factsweep.operators.metrics.distractors.agreement import METRICS as AGREEMENTS
from factsweep.operators.metrics.distractors.agreement import (
    agreement,
    agreement_rows,
    robustness,
    robustness_rows,
)
from factsweep.operators.metrics.distractors.continuations import METRICS as BASELINES
from factsweep.operators.metrics.distractors.continuations import (
    Labels,
    baselines,
    of_judged,
    of_texts,
    of_top_tokens,
    rouge_l,
)
from factsweep.operators.metrics.distractors.distractors import METRICS, distractors
from factsweep.operators.metrics.distractors.karr import METRICS as KARR
from factsweep.operators.metrics.distractors.karr import karr, of_karr
from factsweep.operators.metrics.distractors.preference import (
    VALUES,
    WIDTHS,
    curve,
    of_distractors,
    of_probability,
)
from factsweep.operators.metrics.shared.slices import samples
from factsweep.operators.prompts.clozes import Distractors, clozes, expand
from factsweep.operators.schemas import empty
from factsweep.operators.tables.distractors import distractors as tables


@dataclass(frozen=True)
class Options:
    """What is drawn, and who reads continuations (conf/metrics/).

    `encoder` is the model of BERTScore (a folder, or an id on the hub), `judge_url` and
    `judge_model` an OpenAI-compatible endpoint and its model; its key is OPENAI_API_KEY. Null: that
    measure is left out.
    """

    n_rounds: Annotated[int, Field(ge=1, le=1_000_000)]
    encoder: str | None
    judge_url: str | None
    judge_model: str | None

    def __post_init__(self) -> None:
        """Refuse half a judge."""
        if (self.judge_url is None) != (self.judge_model is None):
            raise InputError("metrics.judge_url and metrics.judge_model go together; give both.")

    @property
    def judge(self) -> Judge | None:
        """The judge, if one is named."""
        if self.judge_url is None or self.judge_model is None:
            return None
        return Judge(OpenAIChat(self.judge_url, self.judge_model, key(), temperature=0.0))


def _matcher(_facts: Facts, _pipeline: str, _tokenizer: Callable[[], Any]) -> method.Matcher:
    """Preferences need no facts to be matched with: what is right was asked."""

    def match(answers: pl.DataFrame, further: method.Tables) -> method.Tables:
        columns = ["prompt_id", "relation_id", "pair_id", "template_id", "subject_index"]
        asked = answers.select(columns)
        by_cloze, by_chance = (
            asked.join(further[table], on="prompt_id", maintain_order="left")
            for table in ("beams", "chances")
        )
        by_pair = by_chance.select(empty("by_chance").columns)
        return {"preferred": preferred(answers), "continued": by_cloze, "by_chance": by_pair}

    return match


def _measure(evidence: method.Evidence) -> method.Tables:
    answers, options = evidence.tables["preferred"], evidence.options
    details = evidence.facts.further["details"]
    draws = {"seed": evidence.seed, "n_rounds": options.n_rounds}
    said = pl.concat([VALUES.to_frame(), *_of_continuations(evidence)])
    by_chance = of_karr(answers, evidence.tables["by_chance"])
    values = pl.concat([of_distractors(answers), of_probability(answers), by_chance, said])
    ratings = details.select("pair_id", rating="human_score")
    agreeing = agreement(values, ratings, seed=evidence.seed)
    verbalised = details.filter(sample=VERBALISED).select("pair_id")
    robust = robustness(values.join(verbalised, on="pair_id", how="semi"))
    metrics = [
        distractors(answers, details, evidence.n_failed, **draws),
        baselines(said, evidence.n_failed, **draws),
        *([] if by_chance.is_empty() else [karr(by_chance, evidence.n_failed, **draws)]),
        agreement_rows(agreeing),
        robustness_rows(robust),
    ]
    return {
        "metrics": pl.concat(metrics),
        "curve": _curves(answers, details),
        "agreement": agreeing,
        "robustness": robust,
    }


def _curves(answers: pl.DataFrame, details: pl.DataFrame) -> pl.DataFrame:
    """Min@n and Avg@n by n, over all facts (sample null) and over each sample of the set."""
    parts = [(None, answers), *samples(answers, details)]
    sample = {name: pl.lit(name, pl.String).alias("sample") for name, _ in parts}
    return pl.concat(curve(rows).with_columns(sample[name]) for name, rows in parts)


def _of_continuations(evidence: method.Evidence) -> Iterator[pl.DataFrame]:
    """What the measures of continuations say of each cloze, of those that there is a reader for."""
    continued, options = evidence.tables["continued"], evidence.options
    labels = _labels(evidence.facts)
    if continued.is_empty():
        return
    yield of_top_tokens(continued, labels)
    yield of_texts(continued, labels, "rouge_l", rouge_l, WIDTHS)
    if options.encoder is not None:
        yield of_texts(continued, labels, "bertscore", BertScore(options.encoder), WIDTHS)
    if options.judge is not None:
        relations = continued["relation_id"].unique(maintain_order=True)
        asked = pl.concat([clozes(evidence.facts.of(each)) for each in relations])
        texts = dict(asked.select("prompt_id", "query").iter_rows())
        yield of_judged(continued, labels, texts, options.judge)


def _labels(facts: Facts) -> Labels:
    """All labels of each pair's one object."""
    first = pl.col("objects").list.first().struct.field("labels")
    return dict(facts.pairs.select("pair_id", first).iter_rows())


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
        metrics=(*METRICS, *BASELINES, *KARR, *AGREEMENTS),
    ),
    show=method.Show("distractors", report, tables.card, digest),
    compare=method.Compare(
        terms=lambda first, second, unit, _robust_share: paired_preferences(
            first["preferred"], second["preferred"], unit=unit
        ),
        # A fact is right after a cloze where its answer beats all distractors.
        evidence=lambda tables: evidence(known(tables["preferred"])),
    ),
)
