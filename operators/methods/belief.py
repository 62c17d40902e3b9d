"""BELIEF and BELIEF-ICL: many prompts per fact, matched by lemmas, with confidence from samples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import polars as pl
from polars import selectors
from pydantic import Field

from factsweep.operators.datasets.facts import Facts, with_right_labels
from factsweep.operators.estimates.paired import paired
from factsweep.operators.estimates.repeats import Drawn, Repeat, with_repeats
from factsweep.operators.estimates.table import controls_of, estimates, scored, templates
from factsweep.operators.estimates.variance import variance
from factsweep.operators.matching.lemmas import correct, key, words
from factsweep.operators.matching.normalise import Normaliser
from factsweep.operators.methods import method
from factsweep.operators.metrics.belief.analyses import Analysis, analyses
from factsweep.operators.metrics.belief.belief import belief, by_part
from factsweep.operators.metrics.belief.calibration import bins, confidence
from factsweep.operators.metrics.belief.consist import By
from factsweep.operators.metrics.belief.knowledge_state import (
    evidence,
    knowledge_sharing,
    sampled_correctness,
)
from factsweep.operators.metrics.comparing.comparison import COMPARISON, compare_ranked
from factsweep.operators.metrics.comparing.paired_terms import (
    paired_calibration_terms,
    paired_terms,
)
from factsweep.operators.metrics.comparing.pairing import Unit, unit_of
from factsweep.operators.prompts.expansion import expand
from factsweep.operators.prompts.setting import Setting
from factsweep.operators.schemas import empty
from factsweep.operators.tables.belief.belief import SHOWN, card, headline, parts
from factsweep.operators.tables.belief.belief_paper import NAMES, TABLES
from factsweep.operators.tables.belief.effects import MOST_PAIRS, effects, effects_table, pairs
from factsweep.operators.tables.belief.figures import (
    calibration_figure,
    coverage,
    coverage_figure,
    knowledge_sharing_figure,
    spread_by_relation,
    template_spread_figure,
)
from factsweep.operators.tables.runs.data_set import sizes, template_examples
from factsweep.operators.tables.shared.asking import called
from factsweep.operators.tables.shared.canvas import Figure
from factsweep.operators.tables.shared.paper_table import fill
from factsweep.operators.tables.shared.published import asked_with

TITLES: Mapping[str, str] = {
    **{name: table.title for name, table in TABLES.items()},
    "headline": "All metrics of the run",
    "parts": "By popularity of the fact (0: the least popular tenth), and by sample of the set",
    "calibration": "Calibration: confidence and accuracy, by bin of confidence",
    "coverage": "Coverage: the mean prompt, the best template, any prompt",
    "knowledge-sharing": "Of what one model knows, the share that another knows",
    "effects": "Settings compared: what a change of one thing does",
    "template-examples": "Templates, a few of each relation",
    "missing": "Numbers of the papers' tables that are missing, and why",
}


@dataclass(frozen=True)
class Options:
    """How much is drawn for fluctuation and intervals, and what is analysed (conf/metrics/)."""

    n_draws: Annotated[int, Field(ge=1, le=10_000_000)]
    n_rounds: Annotated[int, Field(ge=1, le=1_000_000)]
    n_bins: Annotated[int, Field(ge=1, le=1_000)]
    analyses: tuple[Analysis, ...]


def _matcher(facts: Facts, pipeline: str, _tokenizer: Callable[[], Any]) -> method.Matcher:
    normaliser = Normaliser(pipeline)
    labels = _labels(facts, normaliser)

    def match(answers: pl.DataFrame, further: method.Tables) -> method.Tables:
        matched, samples = correct(_normalised(answers, normaliser), labels), further["samples"]
        sampled = matched.join(samples, on="prompt_id", how="semi", maintain_order="left")
        keys = _normalised(samples, normaliser).select("prompt_id", "key")
        found = confidence(sampled.select("prompt_id", "key"), keys)
        rows = sampled.join(found, on="prompt_id", maintain_order="left")
        known = sampled.select("prompt_id", "relation_id", "pair_id")
        counts = sampled_correctness(keys.join(known, on="prompt_id"), labels)
        return {"answers": matched, "calibration": rows, "sampled": counts}

    return match


def _labels(facts: Facts, normaliser: Normaliser) -> pl.DataFrame:
    """One row per label of a right answer: pair_id, key."""
    labels = pl.col("objects").list.eval(pl.element().struct.field("labels").explode())
    pairs = facts.pairs.select("pair_id", text=labels).explode("text")
    return _normalised(pairs, normaliser).select("pair_id", "key")


def _normalised(rows: pl.DataFrame, normaliser: Normaliser) -> pl.DataFrame:
    """The rows with `key` and `n_lemmas` of their column `text`."""
    distinct = rows.select("text").unique()
    lemmas = normaliser.normalise(distinct["text"]).alias("lemmas")
    keys = distinct.with_columns(lemmas).select(
        "text", key=key(pl.col("lemmas")), n_lemmas=pl.col("lemmas").list.len().cast(pl.UInt16)
    )
    return rows.join(keys, on="text", how="left", nulls_equal=True, maintain_order="left")


def _measure(evidence: method.Evidence) -> method.Tables:
    sampled = evidence.n_failed_samples is not None
    calibration = evidence.tables["calibration"]
    return {
        "metrics": core(evidence, calibration if sampled else None, by="match"),
        "bins": bins(calibration, evidence.options.n_bins),
    }


def core(evidence: method.Evidence, calibration: pl.DataFrame | None, *, by: By) -> pl.DataFrame:
    """What decoders and encoders have in common: the metrics, and the analyses asked for."""
    answers, n_failed = evidence.tables["answers"], evidence.n_failed
    options, facts = evidence.options, evidence.facts
    drawn: dict[str, Any] = {"by": by, "seed": evidence.seed, "n_rounds": options.n_rounds}
    metrics = belief(
        answers,
        calibration,
        n_failed,
        n_draws=options.n_draws,
        n_bins=options.n_bins,
        n_failed_samples=evidence.n_failed_samples,
        **drawn,
    )
    of_parts = by_part(answers, facts.further.get("details", empty("details")), **drawn)
    further = analyses(
        options.analyses, answers, facts.templates, n_failed, evidence.again, **drawn
    )
    return pl.concat([metrics, of_parts, further])


def report(result: method.Result) -> method.Report:
    """The headline, the papers' tables, the calibration; of decoders and encoders."""
    metrics, in_bins = result.tables["metrics"], result.tables["bins"]
    tables = {"headline": headline(metrics), "calibration": in_bins}
    if not (of_parts := parts(metrics)).is_empty():
        tables["parts"] = of_parts
    tables |= _paper_tables(metrics, result)
    tables["template-examples"] = template_examples(result.facts)
    spreads = _spreads(metrics, result.facts)
    figures = {**calibration(in_bins), **_coverage(metrics), **spreads}
    titles = {**TITLES, **dict.fromkeys(spreads, "Worst, mean and best template of each relation")}
    if len(result.answers) < 2:
        return method.Report(tables, figures, titles)
    shares = knowledge_sharing((str(run), load.all()) for run, load in result.answers.items())
    found = effects(result.answers)
    tables["knowledge-sharing"] = shares.with_columns(selectors.float().round(4))
    tables["effects"] = effects_table(found)
    n_pairs = len(list(pairs(result.answers)))
    if n_pairs > MOST_PAIRS:
        titles["effects"] += f" (the first {MOST_PAIRS} of {n_pairs} pairs)"
    squares = shares.rename({"sharing": "value"})
    figures["knowledge-sharing"] = knowledge_sharing_figure(squares, "knowledge sharing")
    return method.Report(tables, figures, titles, raw={"effects": found})


def _paper_tables(metrics: pl.DataFrame, result: method.Result) -> method.Tables:
    """The papers' tables that the runs have numbers for, and why numbers are missing in them.

    The papers draw demonstrations for each prompt. Where runs did, their numbers are taken.
    """
    (benchmark,) = metrics["benchmark"].unique()
    by_prompt = metrics["variant"].str.contains("scope=prompt").any()
    rows = asked_with(metrics, "prompt" if by_prompt else "shared")
    costs = result.costs.with_columns(benchmark=pl.lit(benchmark))
    rows = pl.concat(
        [rows, costs, sizes(result.facts, benchmark, parse=result.parse, encode=result.encode)],
        how="diagonal",
    )
    filled = {
        name: fill(table, rows, result.published, benchmark=benchmark, names=NAMES)
        for name, table in TABLES.items()
    }
    shown = {name: each for name, each in filled.items() if each.n_measured}
    missing = [
        each.missing.select(pl.lit(name).alias("table"), pl.all()) for name, each in shown.items()
    ]
    return {name: each.table for name, each in shown.items()} | {"missing": pl.concat(missing)}


def _coverage(metrics: pl.DataFrame) -> Mapping[str, "Figure"]:
    found = coverage(metrics)
    return {} if found.is_empty() else {"coverage": coverage_figure(found)}


def _spreads(metrics: pl.DataFrame, facts: Facts) -> Mapping[str, "Figure"]:
    """The spread of the templates' accuracy, one figure per run."""
    labels = dict(facts.relations.select("relation_id", "label").iter_rows())
    figures = {}
    for (run,), rows in metrics.group_by(
        called("model", "setting", "variant"), maintain_order=True
    ):
        spread = spread_by_relation(rows, labels)
        if not spread.is_empty():
            name = f"template-spread-{str(run).replace(' ', '-')}"
            figures[name] = template_spread_figure(spread, str(run))
    return figures


def calibration(in_bins: pl.DataFrame) -> Mapping[str, "Figure"]:
    """Calibration: one panel per model."""
    if in_bins.is_empty():
        return {}
    panels = in_bins.with_columns(panel="model", series=called("setting", "variant"))
    return {"calibration": calibration_figure(panels, "calibration")}


def digest(facts: Facts, answers: pl.DataFrame) -> method.Digest:
    """How often each fact was answered right, its answers by how often they came, the templates."""
    answers = answers.with_columns(asked=pl.lit(None, pl.String))
    share = pl.col("correct").mean()
    found = answers.group_by("pair_id", "asked", maintain_order=True).agg(share=share, n=pl.len())
    counted = answers.group_by("pair_id", "asked", "key").agg(n=pl.len(), right=pl.first("correct"))
    replies = counted.sort("pair_id", "n", "key", descending=[False, True, False]).select(
        "pair_id",
        "asked",
        "right",
        answer=words(pl.col("key")).fill_null(""),
        note=pl.format("{}×", "n"),
    )
    return method.Digest(
        with_right_labels(found, facts.pairs),
        replies,
        answers.group_by("template_id", maintain_order=True).agg(share=share),
    )


def _terms(
    first: method.Tables, second: method.Tables, unit: Unit, robust_share: float, *, by: By
) -> pl.DataFrame:
    """The terms of the answers, and of the confidences where both runs have any."""
    answers = first["answers"], second["answers"]
    terms = paired_terms(*answers, robust_share=robust_share, by=by, unit=unit)
    sampled = first["calibration"], second["calibration"]
    if any(rows.is_empty() for rows in sampled):
        return terms
    return pl.concat([terms, paired_calibration_terms(*sampled, unit=unit_of(*sampled))])


def _ranked(first: pl.DataFrame, second: pl.DataFrame, n_rounds: int) -> pl.DataFrame:
    """The metrics that order the prompts by confidence, where both runs have any."""
    if first.is_empty() or second.is_empty():
        return COMPARISON.to_frame()
    return compare_ranked(first, second, seed=0, n_rounds=n_rounds, unit=unit_of(first, second))


def _evidence(tables: method.Tables) -> pl.DataFrame:
    sampled, calibration = tables.get("sampled"), tables["calibration"]
    return evidence(tables["answers"], sampled, calibration if calibration.height else None)


def comparing(by: By) -> method.Compare:
    """How runs are compared; two answers of a fact agree `by` containing each other or equality."""
    return method.Compare(terms=partial(_terms, by=by), evidence=_evidence, ranked=_ranked)


def _estimated(part: method.Part) -> method.Tables:
    found, options = scored(part.pairs, part.answers), part.options
    earlier = part.control
    control = None if earlier is None else controls_of(part.pairs, part.answers, earlier)
    drawn = {"n_rounds": options.n_rounds, "n_draws": options.n_draws}
    return {
        "estimates": estimates(found, seed=part.seed, control=control, **drawn),
        "estimated_templates": templates(found),
        "variance": with_repeats(
            variance(found.sample, found.correct),
            found,
            part.pairs,
            _drawn(part.setting),
            [_repeat(part.setting, each) for each in part.beside],
        ),
    }


def _drawn(setting: Setting) -> Drawn | None:
    """For how many prompts demonstrations are drawn at once."""
    if not setting.shots:
        return None
    if setting.scope == "prompt":
        return "prompt"
    shared: Mapping[str, Drawn] = {"random": "all", "relation": "relation", "template": "template"}
    return shared[setting.context]


def _repeat(setting: Setting, beside: method.Beside) -> Repeat:
    again = None if beside.setting is None or not setting.shots else beside.setting["scope"]
    return Repeat(beside.answers(), again, None if beside.first is None else beside.first())


METHOD = method.Method(
    ask=method.Ask(Setting, expand, masked="belief-masked"),
    measure=method.Measure(
        version=2,  # 2: intervals of small relations
        answers="answers",
        matcher=_matcher,
        versions=lambda pipeline: Normaliser(pipeline).versions,
        compute=_measure,
        main_metric="acc_at_1",
        options=Options,
        calibration="calibration",
        beside=("sampled",),
        measured=("metrics", "bins"),
        metrics=SHOWN,
        sampling=method.Sampling(
            _estimated, targets=("acc_at_1", "one_word_ratio", "consist"), paired=paired
        ),
    ),
    show=method.Show(report, card, published="belief", digest=digest),
    compare=comparing("match"),
)
