"""Samples of a full run's own answers: how often the intervals of estimates cover its numbers.

All that `factsweep run budget=…` does after its prompts are answered is done to answers that are
there: the same choice of prompts (`operators/estimates/choice.py`), the same estimates
(`table.py`).
"""

from functools import cached_property

import polars as pl
from _simulation import counted

from factsweep.operators.estimates.choice import (
    Relation,
    choose_prompts,
    relation,
    tabulate_designs,
)
from factsweep.operators.estimates.intervals import IntervalEstimate
from factsweep.operators.estimates.table import estimates, index_answers, of_full_run
from factsweep.operators.metrics.belief.answers import (
    acc_at_1_terms,
    consist_terms,
    fluctuation,
    one_word_ratio_terms,
)
from factsweep.operators.metrics.shared.bootstrap import bootstrap_ratios

_PLACE = ("pair_id", "template_id", "subject_index")


class FullRun:
    """All matched answers of a run; samples are drawn from them.

    `answers` has relation_id, pair_id, template_id, subject_index, key, n_lemmas and correct;
    `prompts` (relation_id, pair_id, template_id, subject_index) the prompts, answered or not;
    null: the answered prompts.
    """

    def __init__(self, answers: pl.DataFrame, prompts: pl.DataFrame | None = None) -> None:
        """Number nothing yet: samples are read as the command line reads them."""
        ids = pl.col("relation_id", "pair_id", "template_id").cast(pl.String)
        place = pl.col("subject_index").cast(pl.UInt16)
        self.answers = answers.with_columns(ids, place)
        self._asked = self.answers if prompts is None else prompts.with_columns(ids, place)

    @cached_property
    def relations(self) -> dict[str, Relation]:
        """The prompts of each relation."""
        parts = self._asked.sort("relation_id").group_by("relation_id", maintain_order=True)
        return {str(name): relation(rows.select(_PLACE)) for (name,), rows in parts}

    @cached_property
    def pairs(self) -> pl.DataFrame:
        """The full run's prompts of each pair, like the table `crossed`."""
        return tabulate_designs(self.relations)

    def sampled(self, share: float, seed: int) -> pl.DataFrame:
        """The answers to a sample of the prompts, in the order in which a run has them."""
        sample = choose_prompts(self.relations, lambda n: round(share * n), seed=seed)
        places = pl.concat(
            rows.select(_PLACE).with_columns(relation_id=pl.lit(name))
            for name, rows in sample.items()
        )
        return self.answers.join(places, on=["relation_id", *_PLACE], how="semi")

    def estimated(
        self, share: float, seed: int, *, n_rounds: int = 1000, n_draws: int = 50_000
    ) -> pl.DataFrame:
        """The table ESTIMATES of a run with this budget and seed."""
        scores_ = index_answers(self.pairs, self.sampled(share, seed))
        return estimates(scores_, seed=seed, n_rounds=n_rounds, n_draws=n_draws)

    def coverage(self, share: float, *, n_samples: int, seed: int = 0) -> pl.DataFrame:
        """How often the intervals of samples cover the run's numbers, of the schema COVERAGE.

        `seed` is the run's, by which it draws templates for the fluctuation.
        """
        return counted(
            self.truth(seed),
            [self._found(share, sample_seed, seed) for sample_seed in range(n_samples)],
            share,
        )

    def _found(self, share: float, sample: int, seed: int) -> dict[str, IntervalEstimate]:
        return of_full_run(index_answers(self.pairs, self.sampled(share, sample)), seed=seed)

    def truth(self, seed: int, *, n_draws: int = 50_000) -> dict[str, float]:
        """The defined numbers of the run; the fluctuation uses the draws of a seed."""
        draws = fluctuation(self.answers, draw="template", n_draws=n_draws, seed=seed)
        terms = {
            "acc_at_1": acc_at_1_terms(self.answers),
            "one_word_ratio": one_word_ratio_terms(self.answers),
            "consist": consist_terms(self.answers),
        }
        ratios = bootstrap_ratios(terms, seed=seed, n_rounds=0)
        true_values = {name: ratio.overall.value for name, ratio in ratios.items()}
        true_values["fluctuation_sd"] = draws.sd
        return {name: value for name, value in true_values.items() if value is not None}
