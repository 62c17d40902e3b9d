"""Where the variance of answers comes from, and what to spend the next prompt on.

An answer is right or not; its variance over all prompts of the full run is that between relations,
between the facts of a relation, and within facts: between templates, facts × templates, names, and
the rest (their interaction, demonstrations and decoding). Within facts they are those of
`components.py`;
the noise that few prompts per fact add to the facts' means is taken out of the variance between
facts (Searle, Casella and McCulloch 1992, section 3.6).
"""

import numpy as np
import polars as pl

from factsweep.operators.estimates.crossed import Crossed, FloatArray
from factsweep.operators.estimates.fluctuations.components import Components, components, errors
from factsweep.operators.estimates.groups import group_means, spread
from factsweep.operators.estimates.means import between_facts
from factsweep.operators.metrics.shared.blas import single_threaded_blas
from factsweep.operators.schemas import SETTING, columns

SOURCES = ("relation", "fact", "template", "fact × template", "name", "rest")
VARIANCE = columns("variance", *SETTING)
# The part of the error for other facts below which more prompts of the same facts are of no use.
_LITTLE = 0.1


@single_threaded_blas()
def variance(sample: Crossed, correct: FloatArray) -> pl.DataFrame:
    """Split the variance of an answer, and those of the estimate of Acc@1, by source: VARIANCE.

    An answer's is over all prompts, `full_error` the estimate's about the full run's number, and
    `other_error` about that of other facts of these relations. No row if no fact was asked twice.
    """
    if (found := components(sample, correct)) is None:
        return VARIANCE.to_frame()
    of_answers = split(sample, correct, found)
    facts, *prompts = _errors(sample, correct, found)
    others = of_answers[SOURCES.index("fact")] / max(1, int(sample.is_asked.sum()))
    rows = {
        "source": SOURCES,
        "variance": np.clip(of_answers, 0.0, None),
        "full_error": [0.0, facts, *prompts],
        "other_error": [0.0, max(0.0, others), *prompts],
        "why": [None] * len(SOURCES),
    }
    return pl.DataFrame(rows, schema=VARIANCE)


def split(sample: Crossed, values: FloatArray, found: Components) -> FloatArray:
    """Split the variance of a score, of which these are the components, by SOURCES."""
    own = np.bincount(sample.relation) / sample.n_facts
    within = (found.template, found.fact_template, found.name, found.rest)
    return np.array([*_between(sample, values, found), *(float(own @ each) for each in within)])


def _between(sample: Crossed, correct: FloatArray, found: Components) -> tuple[float, float]:
    """The variance between relations, and between the facts of a relation."""
    asked, n = sample.is_asked, len(sample.n_templates)
    relation, means = sample.relation[asked], sample.mean_by_fact(correct)[asked]
    several = np.bincount(relation, minlength=n) > 1
    if not several.any():
        return 0.0, 0.0
    own = np.bincount(sample.relation) * several
    own = own / own.sum()
    inside = found.fact_template + found.name + found.rest
    noise = (sample.fact_means - 1 / sample.n_prompts)[asked]
    within = spread(relation, means, n) - inside * group_means(relation, noise, n)
    centres = group_means(relation, means, n)
    return float(own @ (centres - own @ centres) ** 2), float(own @ within)


def _errors(sample: Crossed, correct: FloatArray, found: Components) -> list[float]:
    """The variance of the estimate about the full run: facts not asked, then within facts."""
    weights = np.ones(sample.n_facts) / sample.n_facts
    if sample.is_asked.all():
        return [0.0, *errors(sample, weights, found).sum(axis=1).tolist()]
    here = sample.sampled_weights(weights)[sample.is_asked]
    within = errors(sample.only(sample.is_asked), here, found).sum(axis=1).tolist()
    share = float(sample.is_asked.mean())
    # The facts' means, which differ, owe a part of that to the noise within facts.
    total, _ = between_facts(sample, sample.mean_by_fact(correct), weights)
    return [max(0.0, total - (1 - share) * sum(within)), *(share * each for each in within)]


def advice(rows: pl.DataFrame) -> str:
    """Say in one sentence what to spend the next prompt on; columns: VARIANCE."""
    is_fact = pl.col("source") == "fact"
    facts, prompts, others, all_others = rows.select(
        pl.col("full_error").filter(is_fact).sum(),
        pl.col("full_error").filter(~is_fact).sum().alias("prompts"),
        pl.col("other_error").filter(is_fact).sum(),
        pl.col("other_error").sum().alias("all"),
    ).row(0)
    if rows.is_empty():
        return "Ask more: no fact was asked twice, so nothing says where the variance comes from."
    if facts + prompts <= 0:
        return "Ask other facts, if the number is to hold for others: these are all asked."
    if facts > prompts:
        return (
            f"Ask more prompts: {facts / (facts + prompts):.0%} of the variance of the estimate is "
            "that of facts which were not asked, and a larger budget asks these first."
        )
    if others >= (1 - _LITTLE) * all_others:
        return (
            "Ask other facts, if the number is to hold for others: "
            f"{others / all_others:.0%} of the variance about them is that of the facts, which "
            "more prompts of these facts do not lessen."
        )
    return (
        "Ask more prompts of these facts: four times as many make the interval of the full run "
        "half as wide."
    )
