"""BELIEF and BELIEF-ICL: many prompts per fact, matched by lemmas, with confidence from samples."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from operator import call
from typing import Annotated, Any

import polars as pl
from pydantic import Field

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.estimates.control import controls
from factsweep.operators.estimates.table import estimates, index_answers
from factsweep.operators.matching.lemmas import mark_correct
from factsweep.operators.matching.normalise import Normaliser
from factsweep.operators.methods import method
from factsweep.operators.methods.belief_report import digest, report
from factsweep.operators.metrics import pass_at_k
from factsweep.operators.metrics.belief import belief
from factsweep.operators.metrics.belief.analyses import ESTIMATED, Analysis, analyses
from factsweep.operators.metrics.belief.answers import DRAWS, By, CondensedAnswers
from factsweep.operators.metrics.belief.calibration import ECE, confidence, ovconf_by_length
from factsweep.operators.metrics.belief.confidence_kinds import (
    CLUSTERS,
    SAMPLES,
    bins_by_kind,
    by_kind,
    confidence_differences,
    confidence_kinds,
    variant_of,
)
from factsweep.operators.metrics.belief.knowledge_state import count_right_samples, evidence
from factsweep.operators.metrics.comparing import paired
from factsweep.operators.metrics.comparing.comparison import COMPARISON, compare_ranked
from factsweep.operators.metrics.shared.rows import count_answers
from factsweep.operators.prompts.expansion import expand
from factsweep.operators.prompts.setting import Setting
from factsweep.operators.schemas import empty
from factsweep.operators.tables.belief import SHOWN, card

_IDS = ("relation_id", "pair_id")
_AT_ONCE = 2  # parts of the metrics in memory
OF_SAMPLES = ("ovconf", "brier", "ece", "auroc", *pass_at_k.NAMES)


@dataclass(frozen=True)
class Options:
    """How much is drawn for fluctuation and intervals, and the analyses (conf/metrics/)."""

    n_draws: Annotated[int, Field(ge=1, le=10_000_000)]
    n_rounds: Annotated[int, Field(ge=1, le=1_000_000)]
    n_bins: Annotated[int, Field(ge=1, le=1_000)]
    analyses: tuple[Analysis, ...]


def _matcher(facts: Facts, pipeline: str, _tokenizer: Callable[[], Any]) -> method.Matcher:
    normaliser = Normaliser(pipeline)
    label_lists = pl.col("objects").list.eval(pl.element().struct.field("labels").explode())
    labels = facts.pairs.select("pair_id", text=label_lists).explode("text")
    labels = normaliser.add_keys(labels)
    right_keys = labels.select("pair_id", "key")
    if facts.typed is not None:
        right_keys = pl.concat([right_keys, facts.typed.label_keys(labels)])

    def add_keys(rows: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
        """The rows (prompt_id, text) with their keys; `pairs` has the pair of each prompt."""
        rows = normaliser.add_keys(rows)
        if facts.typed is None:
            return rows
        pairs = pairs.select("prompt_id", "pair_id")
        rows = rows.drop("pair_id", strict=False)
        rows = rows.join(pairs, on="prompt_id", how="left", maintain_order="left")
        return facts.typed.add_value_keys(rows, labels)

    def match(answers: pl.DataFrame, extra_tables: method.Tables) -> method.Tables:
        matched, samples = (
            mark_correct(add_keys(answers, answers), right_keys),
            extra_tables["samples"],
        )
        sampled = matched.join(samples, on="prompt_id", how="semi", maintain_order="left")
        keys = add_keys(samples, sampled).select("prompt_id", "key")
        confidences = confidence(sampled.select("prompt_id", "key"), keys)
        rows = sampled.join(confidences, on="prompt_id", maintain_order="left")
        ids = sampled.select("prompt_id", "relation_id", "pair_id")
        counts = count_right_samples(mark_correct(keys.join(ids, on="prompt_id"), right_keys))
        kinds = confidence_kinds(matched, keys, extra_tables)
        return {"answers": matched, "calibration": rows, "sampled": counts, "confidences": kinds}

    return match


def condense(
    tables: method.Tables, repeated_answers: pl.DataFrame, facts: Facts, options: Options, *, by: By
) -> method.Tables:
    """The condensed answers and confidences of some relations."""
    answers, templates = tables["answers"], facts.templates
    condensed = belief.condense(answers, by=by, analyses=options.analyses, templates=templates)
    prompts = (
        repeated_answers if "ovconf_by_length" in options.analyses else repeated_answers.clear()
    )
    decoded_again = answers.join(prompts, on="prompt_id", how="semi")
    ranked = decoded_again.select("prompt_id", pl.col(_IDS).cast(pl.String), "correct")
    confidences = {name: tables[name] for name in (*CONFIDENCE_TABLES, "sampled") if name in tables}
    return {**condensed._asdict(), "ranked": ranked, **confidences}


def _measure(evidence: method.Evidence) -> method.Tables:
    sampled = evidence.n_failed_samples is not None
    calibration = evidence.tables["calibration"]
    metrics = core(evidence, calibration if sampled else None)
    return {"metrics": metrics, **kinds_compared(evidence)}


# The matched tables of confidences, and the measured ones that compare their kinds.
CONFIDENCE_TABLES = ("calibration", "confidences")
KIND_TABLES = ("bins", "confidence_differences")


def kinds_compared(evidence: method.Evidence) -> method.Tables:
    """KIND_TABLES: the bins of each kind of confidence, and the kinds side by side."""
    calibration, confidences = (evidence.tables[name] for name in CONFIDENCE_TABLES)
    values = (
        bins_by_kind(calibration, confidences, evidence.options.n_bins),
        confidence_differences(calibration, confidences, **evidence.draws),
    )
    return dict(zip(KIND_TABLES, values, strict=True))


def confidence_rows(evidence: method.Evidence, calibration: pl.DataFrame | None) -> pl.DataFrame:
    """The rows of all kinds of confidence; `calibration` is that of samples, null: none."""
    n_bins, n_failed = evidence.options.n_bins, evidence.n_failed_samples
    confidences = evidence.tables.get("confidences", empty("confidences"))
    rows = [belief.kind_rows(confidences, n_failed, n_bins=n_bins, **evidence.draws)]
    if calibration is not None:
        counts = count_answers(calibration, n_failed)
        sample_rows = belief.calibration_rows(calibration, counts, n_bins=n_bins, **evidence.draws)
        rows.insert(0, sample_rows)
    return pl.concat(rows)


def core(evidence: method.Evidence, calibration: pl.DataFrame | None) -> pl.DataFrame:
    """The common part of decoders and encoders: the metrics, and the configured analyses."""
    condensed = CondensedAnswers(*(evidence.tables[name] for name in CondensedAnswers._fields))
    options, facts, repeated_answers = evidence.options, evidence.facts, evidence.repeated_answers
    seed, draws, counts = evidence.seed, evidence.draws, condensed.counts(evidence.n_failed)
    fluctuation = partial(belief.fluctuation_rows, condensed, counts)
    estimates = condensed.estimates((*belief.ESTIMATED, *ESTIMATED), **draws)
    details = facts.extra_tables.get("details", empty("details"))
    parts: list[Callable[[], pl.DataFrame]] = [
        partial(belief.answer_rows, counts, estimates),
        *(partial(fluctuation, draw, seed=seed, n_draws=options.n_draws) for draw in DRAWS),
        partial(confidence_rows, evidence, calibration),
    ]
    if "sampled" in evidence.tables:
        of_samples = evidence.tables["sampled"], evidence.n_failed_samples
        parts.append(partial(pass_at_k.pass_rows, *of_samples, **draws))
    parts += [
        partial(belief.by_part, condensed, details, **draws),
        partial(analyses, options.analyses, condensed, counts, estimates, facts.templates),
    ]
    if "ovconf_by_length" in options.analyses and repeated_answers is not None:
        parts.append(
            partial(ovconf_by_length, evidence.tables["ranked"], repeated_answers, **draws)
        )
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        rows_of_parts: list[pl.DataFrame] = list(threads.map(call, parts))
    return pl.concat(rows_of_parts)


def _confidences_of_both(
    first: method.Tables, second: method.Tables
) -> Iterator[tuple[str, pl.DataFrame, pl.DataFrame]]:
    """Each kind of confidence that both runs have, and its rows in each."""
    runs = []
    for tables in (first, second):
        confidences = tables.get("confidences", empty("confidences"))
        runs.append(by_kind(tables["calibration"], confidences))
    for kind, rows in runs[0].items():
        if kind in runs[1]:
            yield kind, rows, runs[1][kind]


def _named(rows: pl.DataFrame, kind: str) -> pl.DataFrame:
    """The rows of a comparison, their metric with the variant of a kind of confidence."""
    variant = pl.lit(variant_of(kind), pl.String)
    return rows.with_columns(pl.concat_str("metric", variant, separator=" ", ignore_nulls=True))


def _compare_confidences(
    first: method.Tables, second: method.Tables, n_rounds: int
) -> pl.DataFrame:
    parts = [COMPARISON.to_frame()]
    for kind, *runs in _confidences_of_both(first, second):
        rows = compare_ranked(*runs, seed=0, n_rounds=n_rounds, unit=paired.unit_of(*runs))
        if kind in CLUSTERS:
            rows = rows.filter(pl.col("metric") != ECE.name)
        parts.append(_named(rows, kind))
    return pl.concat(parts)


def _compare_terms(
    first: method.Tables, second: method.Tables, unit: paired.Unit, robust_share: float, *, by: By
) -> pl.DataFrame:
    parts = [paired.matched_terms(first, second, unit, robust_share, by=by)]
    for kind, *runs in _confidences_of_both(first, second):
        if kind not in (SAMPLES, *CLUSTERS):
            terms = paired.paired_calibration_terms(*runs, unit=paired.unit_of(*runs))
            parts.append(_named(terms, kind))
    return pl.concat(parts)


def fact_evidence(tables: method.Tables, _facts: Facts) -> pl.DataFrame:
    """A run's evidence on each fact of a relation (columns: EVIDENCE)."""
    return evidence(tables["answers"], tables.get("sampled"), tables["calibration"])


def build_compare(by: By) -> method.Compare:
    """How runs are compared; two answers of a fact agree `by` containing each other or equality."""
    return method.Compare(terms=partial(_compare_terms, by=by), ranked=_compare_confidences)


def estimate_full_run(part: method.Part) -> pl.DataFrame:
    """The full run's numbers, estimated from a part of its answers (table `estimates`)."""
    options, earlier = part.options, part.control
    return estimates(
        index_answers(part.pairs, part.answers),
        seed=part.seed,
        n_rounds=options.n_rounds,
        n_draws=options.n_draws,
        control=None if earlier is None else controls(part.pairs, part.answers, earlier),
    )


METHOD = method.Method(
    ask=method.Ask(Setting, expand, masked="belief-masked"),
    measure=method.Measure(
        # 2: intervals of small relations; 3: texts are folded; 4: pass@k; 5: kinds of confidence
        version=5,
        matcher=_matcher,
        matched=("answers", "calibration", "sampled", "confidences"),
        versions=lambda pipeline: Normaliser(pipeline).versions,
        can_match=lambda labels, pipeline: Normaliser(pipeline).has_words(labels),
        compute=_measure,
        condense=partial(condense, by="match"),
        categories=(*_IDS, "template_id", "key"),
        main_metric="acc_at_1",
        options=Options,
        measured=("metrics", *KIND_TABLES),
        metrics=SHOWN,
        of_samples=OF_SAMPLES,
        sampling=method.Sampling(
            estimate_full_run, targets=("acc_at_1", "one_word_ratio", "consist"), takes_control=True
        ),
    ),
    show=method.Show("belief", report, card, digest),
    compare=build_compare("match"),
    evidence=fact_evidence,
)
