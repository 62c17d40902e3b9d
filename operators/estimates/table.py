"""Answers to a sample of prompts as numbers, and the estimates from them as a table.

The fluctuation's standard deviation is estimated here, without the noise of sampling.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.estimates.components import noise, split_variance
from factsweep.operators.estimates.control import Control, controlled_mean
from factsweep.operators.estimates.crossed import (
    CrossedSample,
    FloatArray,
    group_means,
    spread,
    sum_by_group,
)
from factsweep.operators.estimates.intervals import (
    UNSEEN,
    IntervalEstimate,
    exact_estimate,
    half_width,
)
from factsweep.operators.estimates.means import consist, n_matching, shares_of, weighted_mean
from factsweep.operators.metrics.belief.answers import fluctuation
from factsweep.operators.metrics.shared import bootstrap
from factsweep.operators.schemas import SETTING, columns

ESTIMATES = columns("estimates", *SETTING, "control")
APART = "the templates of some relations were not yet compared with each other"
FEW = "templates have {n:.1f} answers on average, and fewer than {least:g} make it too high"
_FEWEST = 6.0  # answers per template: the interval covers from there on (benchmarks/README.md)


def fluctuation_sd(sample: CrossedSample, values: FloatArray) -> IntervalEstimate:
    """Estimate the standard deviation of accuracy over draws of a template per relation.

    In the full run a draw takes one template per relation, then a name per fact. Over all draws the
    variance of accuracy is Σ_r w_r² · (V_r + Σ_f v_f / F_r²): w_r the relation's share of facts,
    V_r the variance of its templates' accuracies, v_f that of a fact's names within a template.
    The fitted effects of a sample vary more, by their noise about the full run's accuracies, which
    V_r is corrected for. The interval is that of the sum, from the variance of a quadratic form of
    normal noise (Searle, Casella and McCulloch 1992, appendix S.4): 4 e'Me + 2 tr(M²).

    Null with few answers per template, where the noise of the effects is underestimated.
    """
    n = answers_per_template(sample)
    if not sample.is_all and n < _FEWEST:
        # A larger budget is suggested: two prompts per fact at least, so that all facts are asked.
        share = max(
            2 * sample.n_facts / int(sample.n_prompts.sum()),
            (1 - sample.unsampled_share) * _FEWEST / max(n, 1e-9),
        )
        digits = 1 - math.floor(math.log10(100 * share))
        percent = math.ceil(100 * share * 10**digits) / 10**digits  # rounded up, to two digits
        remedy = f"ask budget={percent:g}%" if percent < 100 else "only all prompts give it"
        return IntervalEstimate(None, None, None, f"{FEW.format(n=n, least=_FEWEST)}; {remedy}")
    parts = split_variance(sample, values)
    if parts is None or not (sample.is_asked.all() and all(fit.is_known for fit in parts.fits)):
        return IntervalEstimate(None, None, None, APART)
    # The unseen events, as many in all as for a share (`intervals.py`), are noise, too.
    unseen = UNSEEN * sample.unsampled_share / max(1.0, parts.degrees)
    names = of_names(sample, values, parts.name + parts.rest)
    n_facts = np.bincount(sample.relation)
    total, variance = 0.0, 0.0
    for relation, share in enumerate(n_facts / n_facts.sum()):
        fit, error = parts.fits[relation], noise(sample, parts, relation)
        n_templates = len(fit.effects)
        # It may be below 0 by chance; only the sum over relations is bounded.
        between = float((fit.effects**2).sum() - np.trace(error)) / n_templates
        total += share**2 * (between + names[relation])
        wider = error + fit.inverse * unseen
        least = 2 * (wider**2).sum()
        # The effects have their own noise in them, which adds 4 tr(M²) to the first term.
        squared_error = max(least, 4 * fit.effects @ wider @ fit.effects - least)
        variance += share**4 * float(squared_error) / n_templates**2
    half = half_width(variance, parts.degrees)
    low, value, high = (np.sqrt(max(0.0, total + sign * half)) for sign in (-1, 0, 1))
    return IntervalEstimate(float(value), float(low), float(high))


def answers_per_template(sample: CrossedSample) -> float:
    """The mean over relations, weighted by their squared share of the facts."""
    weights = np.bincount(sample.relation).astype(np.float64) ** 2
    n_answers = np.bincount(sample.cell_relation, minlength=len(weights)) / sample.n_templates
    return float(weights @ n_answers / weights.sum())


def of_names(sample: CrossedSample, values: FloatArray, within: FloatArray) -> FloatArray:
    """Per relation, Σ v_f / F²: the variance of accuracy that the draw of names adds.

    From the templates that a fact was asked in under several names; a relation without any takes
    the mean of all, and a sample without any half the variance `within` templates.
    """
    fact, group = sample.fact_template
    is_several = np.bincount(group) > 1
    n_names, relation = sample.n_names[fact][is_several], sample.relation[fact][is_several]
    variances = spread(group, values)[is_several] * (n_names - 1) / n_names
    n_cells = np.bincount(relation, minlength=len(sample.n_templates))
    typical = variances.mean() if is_several.any() else within / 2
    mean = np.where(n_cells > 0, group_means(relation, variances, len(n_cells)), typical)
    n_facts = np.bincount(sample.relation)
    return (
        mean * sum_by_group(sample.relation, (sample.n_names > 1).astype(np.float64)) / n_facts**2
    )


class Scored(NamedTuple):
    """A sample, with the scores of its prompts' answers (one row each).

    `answers` are the answers themselves: relation_id, pair_id, template_id and correct.
    """

    sample: CrossedSample
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


@bootstrap.single_threaded_blas()
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
    estimate_of |= {name: with_control.estimate for name, with_control in controlled.items()}
    facts = _terms(scored, {name: item.by_fact for name, item in controlled.items()})
    n, n_full, rows = len(sample.fact), int(sample.n_prompts.sum()), []
    for name, estimate in estimate_of.items():
        worth = controlled[name].n_effective if name in controlled else None
        of_other_facts = bootstrap.UNDEFINED
        if name in facts:
            of_other_facts = bootstrap.bootstrap_ratio(
                facts[name], seed=seed, n_rounds=n_rounds
            ).overall
        rows.append(row(name, estimate, of_other_facts, n=n, n_full=n_full, worth=worth))
    return pl.DataFrame(rows, schema=ESTIMATES, orient="row")


def row(
    metric: str,
    estimate: IntervalEstimate,
    of_other_facts: bootstrap.Estimate,
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


def of_full_run(scored: Scored, *, seed: int, n_draws: int = 50_000) -> dict[str, IntervalEstimate]:
    """The estimate of each metric without a control."""
    sample = scored.sample
    means = {name: weighted_mean(sample, *terms) for name, terms in scored.means.items()}
    if sample.is_all:  # that of the full run's own draws
        sd = fluctuation(scored.answers, draw="template", n_draws=n_draws, seed=seed).sd
        fluctuation_estimate = (
            IntervalEstimate(None, None, None) if sd is None else exact_estimate(sd)
        )
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
    sample = CrossedSample(
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
