"""BELIEF and BELIEF-ICL: many prompts per fact, matched by lemmas, with confidence from samples."""

from collections.abc import Callable
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
from factsweep.operators.metrics.belief.calibration import bins, confidence, ovconf_by_length
from factsweep.operators.metrics.belief.knowledge_state import evidence, sampled_correctness
from factsweep.operators.metrics.comparing.comparison import COMPARISON, compare_ranked
from factsweep.operators.metrics.comparing.paired import matched_terms, unit_of
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
        counts = sampled_correctness(keys.join(ids, on="prompt_id"), right_keys)
        return {"answers": matched, "calibration": rows, "sampled": counts}

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
    kept = {name: tables[name] for name in ("calibration", "sampled") if name in tables}
    return {**condensed._asdict(), "ranked": ranked, **kept}


def _measure(evidence: method.Evidence) -> method.Tables:
    sampled = evidence.n_failed_samples is not None
    calibration = evidence.tables["calibration"]
    return {
        "metrics": core(evidence, calibration if sampled else None),
        "bins": bins(calibration, evidence.options.n_bins),
    }


def core(evidence: method.Evidence, calibration: pl.DataFrame | None) -> pl.DataFrame:
    """The common part of decoders and encoders: the metrics, and the configured analyses."""
    condensed = CondensedAnswers(*(evidence.tables[name] for name in CondensedAnswers._fields))
    options, facts, repeated_answers = evidence.options, evidence.facts, evidence.repeated_answers
    seed, counts = evidence.seed, condensed.counts(evidence.n_failed)
    draws, n_bins = {"seed": seed, "n_rounds": options.n_rounds}, options.n_bins
    fluctuation = partial(belief.fluctuation_rows, condensed, counts)
    estimates = condensed.estimates((*belief.ESTIMATED, *ESTIMATED), **draws)
    details = facts.extra_tables.get("details", empty("details"))
    parts: list[Callable[[], pl.DataFrame]] = [
        partial(belief.answer_rows, counts, estimates),
        *(partial(fluctuation, draw, seed=seed, n_draws=options.n_draws) for draw in DRAWS),
    ]
    if calibration is not None:
        sampled = count_answers(calibration, evidence.n_failed_samples)
        rows = partial(belief.calibration_rows, calibration, sampled, n_bins=n_bins, **draws)
        parts.append(rows)
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


def _compare_confidences(first: pl.DataFrame, second: pl.DataFrame, n_rounds: int) -> pl.DataFrame:
    """The metrics that order the prompts by confidence, where both runs have confidences."""
    if first.is_empty() or second.is_empty():
        return COMPARISON.to_frame()
    return compare_ranked(first, second, seed=0, n_rounds=n_rounds, unit=unit_of(first, second))


def build_compare(by: By) -> method.Compare:
    """How runs are compared; two answers of a fact agree `by` containing each other or equality."""
    return method.Compare(
        terms=partial(matched_terms, by=by),
        evidence=lambda tables: evidence(
            tables["answers"], tables.get("sampled"), tables["calibration"]
        ),
        ranked=_compare_confidences,
    )


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
        version=4,  # 2: intervals of small relations; 3: texts are folded; 4: pass@k
        matcher=_matcher,
        matched=("answers", "calibration", "sampled"),
        versions=lambda pipeline: Normaliser(pipeline).versions,
        can_match=lambda labels, pipeline: Normaliser(pipeline).has_words(labels),
        compute=_measure,
        condense=partial(condense, by="match"),
        categories=(*_IDS, "template_id", "key"),
        main_metric="acc_at_1",
        options=Options,
        measured=("metrics", "bins"),
        metrics=SHOWN,
        of_samples=OF_SAMPLES,
        sampling=method.Sampling(
            estimate_full_run, targets=("acc_at_1", "one_word_ratio", "consist"), takes_control=True
        ),
    ),
    show=method.Show("belief", report, card, digest),
    compare=build_compare("match"),
)
