"""A judge of answers to open questions: a model that replies with one of three words.

Each fact is an answer to judge: its name is what the judge reads (`matching.verdicts`), and its
labels are the words for correct, incorrect and not attempted, in this order.
"""

from collections.abc import Callable
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.matching.verdicts import STATES, read_verdict
from factsweep.operators.methods import method
from factsweep.operators.metrics.open_questions import METRICS, VERDICTS, state_rows
from factsweep.operators.metrics.shared.rows import table
from factsweep.operators.prompts.expansion import expand
from factsweep.operators.prompts.judge import JudgePrompt
from factsweep.operators.schemas import columns
from factsweep.operators.tables import open_questions as tables


def _matcher(facts: Facts, _pipeline: str, _tokenizer: Callable[[], Any]) -> method.Matcher:
    judged_ids = facts.pairs.select("pair_id", judged_id="subject_id")
    words = facts.pairs["objects"][0][0]["labels"]
    state_by_word = dict(zip(words, STATES, strict=True))

    def match(answers: pl.DataFrame, _extra_tables: method.Tables) -> method.Tables:
        states = [read_verdict(reply, state_by_word) for reply in answers["text"]]
        rows = answers.with_columns(state=pl.Series(states, dtype=pl.String))
        rows = rows.join(judged_ids, on="pair_id", how="left", maintain_order="left")
        return {"verdicts": rows.select(columns("verdicts").names())}

    return match


def _measure(evidence: method.Evidence) -> method.Tables:
    verdicts = evidence.tables["verdicts"].with_columns(grader=pl.lit("judge"))
    return {"metrics": table([*state_rows(verdicts, evidence.n_failed, None, **evidence.draws)])}


METHOD = method.Method(
    ask=method.Ask(JudgePrompt, expand),
    measure=method.Measure(
        version=1,
        matcher=_matcher,
        matched=("verdicts",),
        compute=_measure,
        main_metric=VERDICTS.name,
        metrics=METRICS,
    ),
    show=method.Show(
        "judge",
        lambda result: method.Report({"headline": tables.headline(result.tables["metrics"])}),
        tables.card,
    ),
)
