"""Open questions: wordings of a question, answers that are correct, incorrect or not attempted."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.matching.answer_span import add_spans, is_refusal, token_f1
from factsweep.operators.matching.graders import Contains, Exact, Gold, Grader
from factsweep.operators.matching.normalise import Normaliser, language_of
from factsweep.operators.matching.verdicts import JUDGE, MAJORITY, add_judged_text, find_majority
from factsweep.operators.methods import belief, method
from factsweep.operators.methods.belief_report import confidence_report, digest
from factsweep.operators.metrics.agreement import agreement, confusion
from factsweep.operators.metrics.belief.answers import By
from factsweep.operators.metrics.belief.calibration import confidence
from factsweep.operators.metrics.belief.confidence_kinds import confidence_kinds
from factsweep.operators.metrics.belief.knowledge_state import count_right_samples
from factsweep.operators.metrics.comparing.paired import Unit, paired_grades
from factsweep.operators.metrics.open_questions import (
    CORRECT,
    DEFAULT_GRADER,
    INCORRECT,
    NOT_ATTEMPTED,
    add_missing,
    open_questions,
)
from factsweep.operators.metrics.pass_at_k import pass_rows
from factsweep.operators.prompts.expansion import expand
from factsweep.operators.prompts.open_question import OpenQuestion
from factsweep.operators.schemas import columns, empty
from factsweep.operators.tables import open_questions as tables

_BY: By = "match"
_IDS = ("prompt_id", "relation_id", "pair_id")
_TITLES: Mapping[str, str] = {
    "headline": "Answers that are correct, incorrect and not attempted, by grader",
    "parts": "By popularity of the subject (0: the least popular tenth) and by type of answer",
    "agreement": "How far two graders agree about the answers, and which states they find",
}


def _matcher(facts: Facts, pipeline: str, _tokenizer: Callable[[], Any]) -> method.Matcher:
    normaliser = Normaliser(pipeline)
    graders = (Contains(normaliser, language_of(pipeline) or "en"), Exact())
    gold: Gold = {
        pair_id: [label for entity in objects for label in entity["labels"]]
        for pair_id, objects in facts.pairs.select("pair_id", "objects").iter_rows()
    }

    def match(answers: pl.DataFrame, extra_tables: method.Tables) -> method.Tables:
        rows = add_spans(answers)
        refused = [span for span in rows["span"].unique() if is_refusal(span, facts.refusals)]
        judged_spans = rows.with_columns(
            _token_f1(rows, gold), is_refused=pl.col("span").is_in(refused)
        )
        by_rule = pl.concat(_grade_answers(judged_spans, gold, grader) for grader in graders)
        by_judges = _add_verdicts(judged_spans, facts).select(by_rule.columns)
        graded = pl.concat([by_rule, by_judges])
        default = graded.filter(grader=DEFAULT_GRADER)["state"] == CORRECT
        keyed = normaliser.add_keys(rows.drop("text").rename({"span": "text"}))
        matched = _as_templates(keyed).with_columns(correct=default)
        raw = matched.with_columns(answers["text"])
        samples = add_spans(extra_tables["samples"])
        sampled = matched.join(samples, on="prompt_id", how="semi", maintain_order="left")
        keys = normaliser.add_keys(samples.select("prompt_id", text="span"))
        confidences = confidence(sampled.select("prompt_id", "key"), keys)
        ids = answers.select(*_IDS, "subject_index")
        judged = ids.join(samples, on="prompt_id")
        judged = judged.with_columns(correct=graders[0].grade(judged, gold))
        return {
            "answers": matched,
            "calibration": sampled.join(confidences, on="prompt_id", maintain_order="left"),
            "sampled": count_right_samples(judged),
            "judged_samples": _count_judged_samples(_add_verdicts(judged, facts)),
            "graded": graded,
            "confidences": confidence_kinds(raw, keys, extra_tables),
        }

    return match


def _token_f1(rows: pl.DataFrame, gold: Gold) -> pl.Series:
    """The F1 of each span's words with those of the nearest right answer; equal ones once."""
    distinct = rows.select("pair_id", "span").unique()
    f1 = [
        max(token_f1(span, label) for label in gold[pair_id])
        for pair_id, span in distinct.iter_rows()
    ]
    distinct = distinct.with_columns(token_f1=pl.Series(f1, dtype=pl.Float64))
    joined = rows.join(distinct, on=["pair_id", "span"], how="left", maintain_order="left")
    return joined["token_f1"]


def _grade_answers(rows: pl.DataFrame, gold: Gold, grader: Grader) -> pl.DataFrame:
    """The verdict of a grader on each answer (table `graded`).

    `rows` have the prompt's ids, span, token_f1, and is_refused: no answer is attempted.
    """
    is_right = grader.grade(rows, gold)
    unmatched = pl.when("is_refused").then(pl.lit(NOT_ATTEMPTED)).otherwise(pl.lit(INCORRECT))
    state = pl.when(is_right).then(pl.lit(CORRECT)).otherwise(unmatched)
    return rows.select(*_IDS, "token_f1", grader=pl.lit(grader.name), state=state).select(
        pl.col(name).cast(dtype) for name, dtype in columns("graded").items()
    )


def _add_verdicts(rows: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """The rows (with pair_id, subject_index, span) once per judge: grader, state (null: none).

    Several judges have a majority, which is a grader of its own.
    """
    empty_text = pl.lit(None, pl.String)
    tables = [rows.clear().with_columns(grader=empty_text, state=empty_text)]
    if facts.verdicts:
        ids = add_judged_text(rows, facts.pairs).select("judged_id")
        join = partial(ids.join, on="judged_id", how="left", maintain_order="left")
        states = {f"{JUDGE}{name}": join(v)["state"] for name, v in facts.verdicts.items()}
        if len(states) > 1:
            votes = map(find_majority, zip(*states.values(), strict=True))
            states[MAJORITY] = pl.Series(votes, dtype=pl.String)
        tables += [rows.with_columns(grader=pl.lit(n), state=s) for n, s in states.items()]
    return pl.concat(tables)


def _count_judged_samples(judged: pl.DataFrame) -> pl.DataFrame:
    is_right = pl.col("state") == CORRECT
    counts = judged.group_by(*_IDS, "grader", maintain_order=True).agg(
        n_samples=pl.len(),
        n_right_samples=pl.when(pl.col("state").null_count() == 0).then(is_right.sum()),
    )
    return counts.select(pl.col(n).cast(t) for n, t in columns("judged_samples").items())


def _as_templates(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with each wording as a template, of which Consist and fluctuation compare several.

    The names of a question's subject are its wordings.
    """
    number = pl.col("subject_index").cast(pl.String).str.zfill(3)
    return rows.with_columns(
        template_id=pl.format("{}.{}", "relation_id", number), subject_index=pl.lit(0, pl.UInt16)
    )


def _condense(
    matched: method.Tables, repeated_answers: pl.DataFrame, facts: Facts, options: belief.Options
) -> method.Tables:
    own_options = _without_template_analyses(options, facts)
    condensed = belief.condense(matched, repeated_answers, facts, own_options, by=_BY)
    graded = {name: matched[name] for name in ("graded", "judged_samples")}
    return {**condensed, **graded}


def _measure(evidence: method.Evidence) -> method.Tables:
    calibrated = evidence.tables["calibration"]
    is_sampled = evidence.n_failed_samples is not None
    qa_metrics = open_questions(
        evidence.tables["graded"], _details(evidence.facts), evidence.n_failed, **evidence.draws
    )
    own_options = _without_template_analyses(evidence.options, evidence.facts)
    own_evidence = replace(evidence, options=own_options)
    shared = belief.core(own_evidence, calibrated if is_sampled else None)
    if not _has_equal_wordings(evidence.facts):  # a draw of a wording would leave facts out
        is_draw = pl.col("metric").str.starts_with("fluctuation_") & pl.col("variant").is_null()
        shared = shared.filter(~is_draw)
    graded = evidence.tables["graded"]
    graders = graded["grader"].unique(maintain_order=True).to_list()
    ids = (*_IDS[1:], "prompt_id")
    verdicts = graded.pivot("grader", index=ids, values="state", maintain_order=True)
    agreed = agreement(verdicts, graders, MAJORITY, **evidence.draws)
    return {
        "metrics": pl.concat([qa_metrics, agreed, *_judged_pass_rows(evidence), shared]),
        "confusion": confusion(verdicts, graders),
        **belief.kinds_compared(evidence),
    }


def _judged_pass_rows(evidence: method.Evidence) -> Iterator[pl.DataFrame]:
    samples, n_failed = evidence.tables["judged_samples"], evidence.n_failed_samples
    for (grader,), of_grader in samples.group_by("grader", maintain_order=True):
        if n_failed is not None:
            n_missing = add_missing(of_grader, "n_right_samples", n_failed)
            rows = pass_rows(of_grader.drop_nulls("n_right_samples"), n_missing, **evidence.draws)
            yield rows.with_columns(variant=pl.format("grader={}", pl.lit(grader)))


def _has_equal_wordings(facts: Facts) -> bool:
    sizes = facts.pairs.group_by("relation_id").agg(n=pl.col("subjects").list.len().unique())
    is_equal = (pl.col("n").list.len() == 1) & (pl.col("n").list.first() > 1)
    return bool(sizes.select(is_equal.all()).item())


def _without_template_analyses(options: belief.Options, facts: Facts) -> belief.Options:
    """The options without the analyses of templates, unless wordings can stand for them."""
    usable = {"ovconf_by_length"} | ({"template_spread"} if _has_equal_wordings(facts) else set())
    return replace(options, analyses=tuple(name for name in options.analyses if name in usable))


def _estimate_full_run(part: method.Part) -> pl.DataFrame:
    """The full run's numbers from a part of its answers; a wording is one of a question's names."""
    parts = pl.col("template_id").cast(pl.String).str.split(".")
    answers = part.answers.with_columns(
        template_id=pl.format("{}.000", parts.list.first()),
        subject_index=parts.list.last().cast(pl.UInt16),
    )
    return belief.estimate_full_run(replace(part, answers=answers))


def _details(facts: Facts) -> pl.DataFrame:
    """pair_id, popularity, sample and answer_type of each question."""
    details = facts.extra_tables.get("details", empty("details"))
    types = facts.extra_tables.get("answer_types", empty("answer_types"))
    ids = facts.pairs.select("pair_id")
    details = details.select("pair_id", "popularity", "sample")
    rows = ids.join(details, on="pair_id", how="left", maintain_order="left")
    types = types.select("pair_id", "answer_type")
    return rows.join(types, on="pair_id", how="left", maintain_order="left")


_BELIEFS = belief.build_compare(_BY)


def _compare_terms(
    first: method.Tables, second: method.Tables, unit: Unit, robust_share: float
) -> pl.DataFrame:
    """BELIEF's terms, by the default grader, and the right answers by each other one of both."""
    graded = (
        tables["graded"].filter(pl.col("grader") != DEFAULT_GRADER) for tables in (first, second)
    )
    by_grader = paired_grades(*graded, unit=unit)
    return pl.concat([_BELIEFS.terms(first, second, unit, robust_share), by_grader])


def _report(result: method.Result) -> method.Report:
    metrics = result.tables["metrics"]
    report_tables = {
        "headline": tables.headline(metrics),
        "agreement": tables.agreement(metrics, result.tables["confusion"]),
    }
    if not (of_parts := tables.select_parts(metrics)).is_empty():
        report_tables["parts"] = tables.parts(of_parts)
    report = method.Report(report_tables, titles=_TITLES)
    return method.join_reports(report, confidence_report(result))


METHOD = method.Method(
    ask=method.Ask(OpenQuestion, expand),
    measure=method.Measure(
        # 2: ordinals, initials, acronyms and abbreviations in `contains`; 3: kinds of confidence;
        # 4: judges, and agreement of graders
        version=4,
        matcher=_matcher,
        matched=("answers", "calibration", "sampled", "judged_samples", "graded", "confidences"),
        versions=lambda pipeline: Normaliser(pipeline).versions,
        can_match=lambda labels, pipeline: Normaliser(pipeline).has_words(labels),
        compute=_measure,
        condense=_condense,
        categories=(*_IDS[1:], "template_id", "key"),
        main_metric="acc_at_1",
        reads_refusals=True,
        takes_judges=True,
        options=belief.Options,
        measured=("metrics", "confusion", *belief.KIND_TABLES),
        metrics=tables.SHOWN,
        of_samples=belief.OF_SAMPLES,
        sampling=method.Sampling(
            _estimate_full_run, targets=("acc_at_1", "one_word_ratio", "consist")
        ),
    ),
    show=method.Show("qa", _report, tables.card, digest),
    compare=replace(_BELIEFS, terms=_compare_terms),
    evidence=belief.fact_evidence,
)
