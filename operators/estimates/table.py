"""Answers to a sample of prompts as numbers, and the estimates from them as a table."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.estimates.control import Control, controlled_mean
from factsweep.operators.estimates.crossed import Crossed, FloatArray
from factsweep.operators.estimates.fluctuation import fluctuation_sd
from factsweep.operators.estimates.intervals import Estimated, exactly
from factsweep.operators.estimates.means import consist, n_matching, shares_of, weighted_mean
from factsweep.operators.metrics.belief.answers import fluctuation
from factsweep.operators.metrics.shared.bootstrap import (
    UNDEFINED,
    Estimate,
    bootstrap_ratio,
    single_threaded_blas,
)
from factsweep.operators.schemas import SETTING, columns

ESTIMATES = columns("estimates", *SETTING, "control")


class Scored(NamedTuple):
    """A sample, with the scores of its prompts' answers (one row each).

    `answers` are the answers themselves: relation_id, pair_id, template_id and correct.
    """

    sample: Crossed
    correct: FloatArray
    one_word: FloatArray
    matches: FloatArray
    answers: pl.DataFrame

    @property
    def means(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """The scores of prompts and the weights of facts, for the means over prompts."""
        return {
            "acc_at_1": (self.correct, np.ones(self.sample.n_facts)),
            "one_word_ratio": (self.one_word, self.sample.n_prompts.astype(np.float64)),
        }


@single_threaded_blas()
def estimates(
    scored: Scored,
    *,
    seed: int,
    n_rounds: int = 1000,
    n_draws: int = 50_000,
    control: Mapping[str, Control] | None = None,
) -> pl.DataFrame:
    """Estimate the full run's numbers: one row per metric, of the schema ESTIMATES.

    `full_low` and `full_high` are a 95 % interval of the full run's own number; `ci_low` and
    `ci_high` one of other facts, by the bootstrap, which includes the sampling: a fact's mean over
    some of its prompts varies more than over all. A number without an estimate is null, with the
    reason in `why`. A `control` by metric (`controls`) narrows the means; `n_effective` prompts
    would say as much without one.
    """
    sample = scored.sample
    controlled = {
        name: controlled_mean(sample, *scored.means[name], of_metric, seed=seed)
        for name, of_metric in (control or {}).items()
    }
    estimate_of = of_full_run(scored, seed=seed, n_draws=n_draws)
    estimate_of |= {name: with_control.found for name, with_control in controlled.items()}
    facts = _terms(scored, {name: item.by_fact for name, item in controlled.items()})
    n, n_full, rows = len(sample.fact), int(sample.n_prompts.sum()), []
    for name, estimate in estimate_of.items():
        worth = controlled[name].n_effective if name in controlled else None
        of_other_facts = UNDEFINED
        if name in facts:
            of_other_facts = bootstrap_ratio(facts[name], seed=seed, n_rounds=n_rounds).overall
        rows.append(row(name, estimate, of_other_facts, n=n, n_full=n_full, worth=worth))
    return pl.DataFrame(rows, schema=ESTIMATES, orient="row")


def row(
    metric: str,
    estimate: Estimated,
    of_other_facts: Estimate,
    *,
    n: int,
    n_full: int,
    worth: float | None,
) -> tuple[object, ...]:
    """A row of the schema ESTIMATES, of `n` prompts of the full run's `n_full`.

    The bootstrap interval of other facts is no narrower than that of the full run's facts, since
    equal answers to a few facts say nothing about others.
    """
    value, full_low, full_high, reason = estimate
    _, low, high = of_other_facts
    if not (low is None or high is None or full_low is None or full_high is None):
        low, high = min(low, full_low), max(high, full_high)
    return metric, value, full_low, full_high, low, high, n / n_full, n, reason, worth


def of_full_run(scored: Scored, *, seed: int, n_draws: int = 50_000) -> dict[str, Estimated]:
    """The estimate of each metric without a control."""
    sample = scored.sample
    means = {name: weighted_mean(sample, *terms) for name, terms in scored.means.items()}
    if sample.is_all:  # that of the full run's own draws
        sd = fluctuation(scored.answers, draw="template", n_draws=n_draws, seed=seed).sd
        fluctuation_estimate = Estimated(None, None, None) if sd is None else exactly(sd)
    else:
        fluctuation_estimate = fluctuation_sd(sample, scored.correct)
    return {
        "acc_at_1": means["acc_at_1"],
        "fluctuation_sd": fluctuation_estimate,
        "consist": consist(sample, scored.matches),
        "one_word_ratio": means["one_word_ratio"],
    }


def _terms(scored: Scored, controlled: Mapping[str, FloatArray]) -> dict[str, pl.DataFrame]:
    """The terms of each sampled fact for the means over facts; `controlled` replaces some means."""
    sample, terms = scored.sample, {}
    means = {name: (sample.mean_by_fact(y), weight) for name, (y, weight) in scored.means.items()}
    means["consist"] = shares_of(sample, scored.matches), np.ones(sample.n_facts)
    ids = {"relation_id": sample.relation, "pair_id": np.arange(sample.n_facts)}
    for name, (mean, weight) in means.items():
        ratio = {"numerator": controlled.get(name, mean) * weight, "denominator": weight}
        is_defined = pl.Series(sample.n_asked > (name == "consist"))  # a single answer is no pair
        terms[name] = pl.DataFrame(ids | ratio).filter(is_defined)
    return terms


def index_answers(pairs: pl.DataFrame, answers: pl.DataFrame) -> Scored:
    """Number the answers of a sample by the facts, templates and names of the full run.

    `pairs` (relation_id, pair_id, n_names, n_templates) are those of the full run; the optional
    n_failed counts a pair's prompts without an answer. `answers` are matched ones: relation_id,
    pair_id, template_id, subject_index, key, n_lemmas and correct.
    """
    relation = pairs.select(pl.col("relation_id").unique().sort()).with_row_index("relation")
    pair = pairs.sort("relation_id", "pair_id").with_row_index("pair")
    of_pair = pair.join(relation, on="relation_id", maintain_order="left")
    sizes = pairs.group_by("relation_id").agg(pl.first("n_templates")).sort("relation_id")
    rows = answers.with_columns(pl.col("relation_id", "pair_id", "template_id").cast(pl.String))
    rows = rows.join(pair.select("pair_id", "pair"), on="pair_id", maintain_order="left")
    number = pl.col("template_id").rank("dense").over("relation_id").cast(pl.Int64) - 1
    rows = rows.with_columns(template=number)
    sample = Crossed(
        of_pair["relation"].cast(pl.Int64).to_numpy(),
        of_pair["n_names"].cast(pl.Int64).to_numpy(),
        sizes["n_templates"].cast(pl.Int64).to_numpy(),
        rows["pair"].cast(pl.Int64).to_numpy(),
        rows["template"].to_numpy(),
        rows["subject_index"].cast(pl.Int64).to_numpy(),
        of_pair["n_failed"].to_numpy() if "n_failed" in pairs.columns else None,
    )
    return Scored(
        sample,
        rows["correct"].cast(pl.Float64).to_numpy(),
        (rows["n_lemmas"] == 1).cast(pl.Float64).to_numpy(),
        n_matching(rows).to_numpy(),
        rows,
    )
