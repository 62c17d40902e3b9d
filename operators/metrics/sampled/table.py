"""Answers to a sample of prompts as numbers, and what is estimated of them as a table."""

from typing import NamedTuple

import numpy as np
import polars as pl

from operators.matching.lemmas import contains
from operators.metrics.belief.consist import By
from operators.metrics.estimates.bootstrap import UNDEFINED, bootstrap_ratio
from operators.metrics.sampled import agreement
from operators.metrics.sampled.crossed import Crossed, FloatArray
from operators.metrics.sampled.fluctuation import fluctuation_sd
from operators.metrics.sampled.means import mean_of_facts, mean_of_prompts

ESTIMATES = pl.Schema(
    {
        "metric": pl.String,
        "value": pl.Float64,
        "full_low": pl.Float64,
        "full_high": pl.Float64,
        "ci_low": pl.Float64,
        "ci_high": pl.Float64,
        "share": pl.Float64,
        "n": pl.Int64,
        "why": pl.String,
    }
)


class Scored(NamedTuple):
    """A sample, with what its prompts' answers score (one row each)."""

    sample: Crossed
    correct: FloatArray
    one_word: FloatArray
    matches: FloatArray


def estimates(scored: Scored, *, seed: int, n_rounds: int = 1000) -> pl.DataFrame:
    """Estimate what the full run would give: one row per metric, of the schema ESTIMATES.

    `full_low` and `full_high` are a 95 % interval of the full run's own number; `ci_low` and
    `ci_high` one of other facts, by the bootstrap of `operators.metrics.estimates.bootstrap`. A
    fact's mean over some of its prompts varies more than over all, so that the second has the
    sampling in it. `share` is that of the full run's prompts in the sample, `n` their number. A
    number that cannot be estimated is null, with the reason in `why`.
    """
    sample = scored.sample
    found = {
        "acc_at_1": mean_of_facts(sample, scored.correct),
        "fluctuation_sd": fluctuation_sd(sample, scored.correct),
        "consist": agreement.consist(sample, scored.matches),
        "one_word_ratio": mean_of_prompts(sample, scored.one_word),
    }
    n = len(sample.fact)
    share = n / int(sample.n_prompts.sum())
    facts = _means(scored)
    others = {
        name: bootstrap_ratio(terms, seed=seed, n_rounds=n_rounds).overall
        for name, terms in facts.items()
    }
    rows = [
        (name, *e[:3], *others.get(name, UNDEFINED)[1:], share, n, e.why)
        for name, e in found.items()
    ]
    return pl.DataFrame(rows, schema=ESTIMATES, orient="row")


def _means(scored: Scored) -> dict[str, pl.DataFrame]:
    """The terms of each asked fact, for the metrics that are means over facts."""
    sample = scored.sample
    n = sample.n_asked
    everyone = np.ones(sample.n_facts)
    of = {
        "acc_at_1": (sample.mean_by_fact(scored.correct), everyone, n > 0),
        "one_word_ratio": (sample.mean_by_fact(scored.one_word), sample.n_prompts, n > 0),
        "consist": (
            sample.mean_by_fact(scored.matches) / np.maximum(1, n - 1),
            everyone,
            n > 1,
        ),
    }
    return {
        name: pl.DataFrame(
            {
                "relation_id": sample.relation,
                "pair_id": np.arange(sample.n_facts),
                "numerator": means * weights,
                "denominator": weights.astype(np.float64),
            }
        ).filter(pl.Series(known))
        for name, (means, weights, known) in of.items()
    }


def scored(pairs: pl.DataFrame, answers: pl.DataFrame, *, by: By = "match") -> Scored:
    """Number the answers of a sample by the facts, templates and names of the full run.

    `pairs` (relation_id, pair_id, n_names, n_templates) is what the full run asks. `answers` are
    matched ones: relation_id, pair_id, template_id, subject_index, key, n_lemmas and correct.
    """
    relation = _numbered(pairs.select(pl.col("relation_id").unique().sort()), "relation")
    pair = _numbered(pairs.sort("relation_id", "pair_id"), "pair")
    of_pair = pair.join(relation, on="relation_id", maintain_order="left")
    sizes = pairs.group_by("relation_id").agg(pl.first("n_templates")).sort("relation_id")
    number = pl.col("template_id").rank("dense").over("relation_id").cast(pl.Int64) - 1
    rows = answers.with_columns(pl.col("relation_id", "pair_id", "template_id").cast(pl.String))
    rows = rows.join(pair.select("pair_id", "pair"), on="pair_id", maintain_order="left")
    rows = rows.with_columns(template=number)
    sample = Crossed(
        of_pair["relation"].to_numpy(),
        of_pair["n_names"].cast(pl.Int64).to_numpy(),
        sizes["n_templates"].cast(pl.Int64).to_numpy(),
        rows["pair"].to_numpy(),
        rows["template"].to_numpy(),
        rows["subject_index"].cast(pl.Int64).to_numpy(),
    )
    return Scored(
        sample,
        rows["correct"].cast(pl.Float64).to_numpy(),
        (rows["n_lemmas"] == 1).cast(pl.Float64).to_numpy(),
        n_matching(rows, by=by).to_numpy(),
    )


def _numbered(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    return rows.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(name))


def n_matching(answers: pl.DataFrame, *, by: By = "match") -> pl.Series:
    r"""How many other answers of the pair each answer matches, as `consist` has it: f64.

    >>> n_matching(pl.DataFrame({
    ...     "pair_id": ["t"] * 4, "key": ["\x1fa\x1f", "\x1fa\x1f", "\x1fa\x1fb\x1f", None]
    ... })).to_list()
    [2.0, 2.0, 2.0, 0.0]
    """
    rows = answers.select("pair_id", pl.col("key").cast(pl.String))
    distinct = rows.drop_nulls("key").group_by("pair_id", "key").len("n")
    same = distinct.with_columns(found=pl.col("n").cast(pl.Int64) - 1)
    found = [same.select("pair_id", "key", "found")]
    if by == "match":
        others = distinct.join(distinct, on="pair_id", suffix="_other")
        others = others.filter(pl.col("key") != pl.col("key_other"))
        a, b = pl.col("key"), pl.col("key_other")
        hits = others.filter(contains(a, b) | contains(b, a))
        found.append(hits.select("pair_id", "key", found=pl.col("n_other").cast(pl.Int64)))
    sums = pl.concat(found).group_by("pair_id", "key").agg(pl.sum("found"))
    joined = rows.join(sums, on=["pair_id", "key"], how="left", maintain_order="left")
    return joined["found"].fill_null(0).cast(pl.Float64)
