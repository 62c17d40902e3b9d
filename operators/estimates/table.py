"""Answers to a sample of prompts as numbers, and what is estimated of them as a table.

Also of two models' answers to the same sample: what their full runs differ by. Two estimates from
the same prompts err in the same direction as far as prompts are hard for both models. So what is
estimated is the mean of the differences of what the two score at each prompt: a mean of the full
run as any other, with the variance of the differences (`means.py`; Cochran 1977, section 2.14, of
paired samples). Nothing is assumed of the models.

Where differences are nearly all 0, few prompts say how often they are not: the variance has two
further changes in it, as with a control (`control.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.estimates.control import (
    Control,
    controlled_mean,
    controls,
    of_unseen,
)
from factsweep.operators.estimates.crossed import Crossed, FloatArray
from factsweep.operators.estimates.fluctuation import fluctuation_sd
from factsweep.operators.estimates.intervals import Estimated, exactly, half_width
from factsweep.operators.estimates.means import (
    consist,
    measured,
    n_matching,
    shares_of,
    weighted_mean,
)
from factsweep.operators.metrics.belief.answers import fluctuation
from factsweep.operators.metrics.comparing.paired import in_both
from factsweep.operators.metrics.shared.bootstrap import (
    UNDEFINED,
    Estimate,
    bootstrap_ratio,
    single_threaded_blas,
)
from factsweep.operators.schemas import SETTING, columns, schema

ESTIMATES = columns("estimates", *SETTING, "control")
# What an answer scores for each mean that a control narrows.
_CONTROLLED = {"acc_at_1": pl.col("correct"), "one_word_ratio": pl.col("n_lemmas") == 1}


class Scored(NamedTuple):
    """A sample, with what its prompts' answers score (one row each).

    `answers` are the answers themselves: relation_id, pair_id, template_id and correct.
    `relation_ids` names the relations by their numbers.
    """

    sample: Crossed
    correct: FloatArray
    one_word: FloatArray
    matches: FloatArray
    answers: pl.DataFrame
    relation_ids: Sequence[str]

    @property
    def means(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """What prompts score, and facts weigh, for the metrics that are means over prompts."""
        return {
            "acc_at_1": (self.correct, np.ones(self.sample.n_facts)),
            "one_word_ratio": (self.one_word, self.sample.n_prompts.astype(np.float64)),
        }


Controls = Mapping[str, Control]  # by the metric that a control narrows


@single_threaded_blas()
def estimates(
    scored: Scored,
    *,
    seed: int,
    n_rounds: int = 1000,
    n_draws: int = 50_000,
    control: Controls | None = None,
) -> pl.DataFrame:
    """Estimate what the full run would give: one row per metric, of the schema ESTIMATES.

    `full_low` and `full_high` are a 95 % interval of the full run's own number; `ci_low` and
    `ci_high` one of other facts, by the bootstrap, which has the sampling in it: a fact's mean over
    some of its prompts varies more than over all. A number that cannot be estimated is null, with
    the reason in `why`. A `control` (`controls_of`) narrows the means, which then say as
    much as `n_effective` prompts would without one.
    """
    sample = scored.sample
    controlled = {
        name: controlled_mean(sample, *scored.means[name], of_metric, seed=seed)
        for name, of_metric in (control or {}).items()
    }
    found = of_full_run(scored, seed=seed, n_draws=n_draws)
    found |= {name: each.found for name, each in controlled.items()}
    facts = _means(scored, {name: each.by_fact for name, each in controlled.items()})
    n, n_full, rows = len(sample.fact), int(sample.n_prompts.sum()), []
    for name, each in found.items():
        worth = controlled[name].n_effective if name in controlled else None
        others = UNDEFINED
        if name in facts:
            others = bootstrap_ratio(facts[name], seed=seed, n_rounds=n_rounds).overall
        rows.append(row(name, each, others, n=n, n_full=n_full, worth=worth))
    return pl.DataFrame(rows, schema=ESTIMATES, orient="row")


def row(
    metric: str, found: Estimated, others: Estimate, *, n: int, n_full: int, worth: float | None
) -> tuple[object, ...]:
    """A row of the schema ESTIMATES, of `n` prompts of the full run's `n_full`.

    The interval of `others`, by the bootstrap, is no narrower than that of the full run's facts: of
    a few that were answered alike, a bootstrap knows nothing of others.
    """
    value, full_low, full_high, why = found
    _, low, high = others
    if not (low is None or high is None or full_low is None or full_high is None):
        low, high = min(low, full_low), max(high, full_high)
    return metric, value, full_low, full_high, low, high, n / n_full, n, why, worth


def of_full_run(scored: Scored, *, seed: int, n_draws: int = 50_000) -> dict[str, Estimated]:
    """What the full run would give, by metric, without a control."""
    sample = scored.sample
    means = {name: weighted_mean(sample, *terms) for name, terms in scored.means.items()}
    if sample.is_all:  # that of the full run's own draws
        drawn = fluctuation(scored.answers, draw="template", n_draws=n_draws, seed=seed)
        sd = Estimated(None, None, None) if drawn.sd is None else exactly(drawn.sd)
    else:
        sd = fluctuation_sd(sample, scored.correct)
    return {
        "acc_at_1": means["acc_at_1"],
        "fluctuation_sd": sd,
        "consist": consist(sample, scored.matches),
        "one_word_ratio": means["one_word_ratio"],
    }


def controls_of(
    pairs: pl.DataFrame, answers: pl.DataFrame, earlier: Callable[[str], pl.DataFrame]
) -> Controls:
    """What an earlier run says of a sample, for the metrics that it narrows.

    `pairs` and `answers` are those of `scored`; `earlier` gives the run's matched answers to all
    prompts of a relation.
    """
    return controls(pairs, answers, earlier, _CONTROLLED)


def _means(scored: Scored, known: Mapping[str, FloatArray]) -> dict[str, pl.DataFrame]:
    """The terms of each asked fact, for the metrics that are means over facts.

    `known` has the facts' means of some, by a control.
    """
    sample, found = scored.sample, {}
    means = {name: (sample.mean_by_fact(y), weight) for name, (y, weight) in scored.means.items()}
    means["consist"] = shares_of(sample, scored.matches), np.ones(sample.n_facts)
    ids = {"relation_id": sample.relation, "pair_id": np.arange(sample.n_facts)}
    for name, (mean, weight) in means.items():
        terms = {"numerator": known.get(name, mean) * weight, "denominator": weight}
        asked = pl.Series(sample.n_asked > (name == "consist"))  # of a single answer is no pair
        found[name] = pl.DataFrame(ids | terms).filter(asked)
    return found


def scored(pairs: pl.DataFrame, answers: pl.DataFrame) -> Scored:
    """Number the answers of a sample by the facts, templates and names of the full run.

    `pairs` (relation_id, pair_id, n_names, n_templates) is what the full run asks; where some
    prompts are known to have no answer, n_failed says how many of a pair's. `answers` are matched
    ones: relation_id, pair_id, template_id, subject_index, key, n_lemmas and correct.
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
        relation["relation_id"].cast(pl.String).to_list(),
    )


def scored_twice(
    pairs: pl.DataFrame, first: pl.DataFrame, second: pl.DataFrame
) -> tuple[Scored, Scored] | None:
    """What two tables of answers score at the prompts of both; null: they share none.

    The tables are those of `scored`, with prompt_id, by which their rows are sorted.
    """
    one, other = (each.sort("prompt_id") for each in in_both(first, second, "prompt"))
    return None if one.is_empty() else (scored(pairs, one), scored(pairs, other))


PAIRED = schema("metric text, difference float, ci_low float, ci_high float")


def paired(pairs: pl.DataFrame, first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """What the second full run's means are more than the first's: the table PAIRED.

    `pairs` and the two tables of answers are those of `table.scored_twice`: prompts that only one
    has answered are left out. A mean that has no interval has no row.
    """
    both = scored_twice(pairs, first, second)
    if both is None:
        return pl.DataFrame(schema=PAIRED)
    one, other = (each.means for each in both)
    rows = [
        (name, *found)
        for name, (values, weights) in one.items()
        if (found := mean_difference(both[0].sample, other[name][0] - values, weights))
    ]
    return pl.DataFrame(rows, schema=PAIRED, orient="row")


def mean_difference(
    sample: Crossed, values: FloatArray, weights: FloatArray
) -> tuple[float, float, float] | None:
    """The mean of differences over the full run, with its interval; null: it has none."""
    found = measured(sample, values, weights)
    if found.variance is None:
        return None
    half = half_width(found.variance + of_unseen(sample), found.degrees)
    return found.value, found.value - half, found.value + half
