"""A sample of a crossed design: which (fact, template, name) were asked, out of which there are.

Sums, means and variances of values by group: of prompts by fact, of facts by relation.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Crossed:
    """The sampled prompts, one per row of `fact`, `template` and `name`; all are numbers.

    `relation` and `n_names` have one row per fact of the full run, `n_templates` one per relation.
    Templates are numbered from 0 in each relation. `n_failed` is how many prompts of each fact are
    known to have no answer, which are none of the full run's numbers either; null: of no fact.
    """

    relation: IntArray
    n_names: IntArray
    n_templates: IntArray
    fact: IntArray
    template: IntArray
    name: IntArray
    n_failed: IntArray | None = None

    @property
    def n_facts(self) -> int:
        """How many facts the full run asks."""
        return len(self.relation)

    @cached_property
    def n_prompts(self) -> IntArray:
        """How many prompts of each fact have an answer in the full run, as far as is known."""
        asked = self.n_names * self.n_templates[self.relation]
        return asked if self.n_failed is None else asked - self.n_failed

    @cached_property
    def n_asked(self) -> IntArray:
        """How many prompts of each fact are in the sample."""
        return np.bincount(self.fact, minlength=self.n_facts)

    @cached_property
    def is_asked(self) -> BoolArray:
        """Whether a fact is in the sample at all."""
        return self.n_asked > 0

    @property
    def is_all(self) -> bool:
        """Whether the sample is the full run."""
        return bool(len(self.fact) == self.n_prompts.sum())

    @property
    def left(self) -> float:
        """The part of the full run's prompts that is not in the sample."""
        return 1 - len(self.fact) / int(self.n_prompts.sum())

    @cached_property
    def cell_relation(self) -> IntArray:
        """The relation of each sampled prompt."""
        return self.relation[self.fact]

    @cached_property
    def in_template(self) -> IntArray:
        """A number for each template of the set; relations one after the other."""
        starts = np.concatenate([[0], np.cumsum(self.n_templates)])
        return starts[self.cell_relation] + self.template

    @cached_property
    def fact_template(self) -> tuple[IntArray, IntArray]:
        """The (fact, template) that were asked, as (fact of each, which of them each prompt is)."""
        return self._groups(self.template, int(self.n_templates.max()))

    @cached_property
    def fact_name(self) -> tuple[IntArray, IntArray]:
        """The (fact, name) that were asked, as (fact of each, which of them each prompt is)."""
        return self._groups(self.name, int(self.n_names.max()))

    def _groups(self, number: IntArray, n: int) -> tuple[IntArray, IntArray]:
        keys, group = np.unique(self.fact * n + number, return_inverse=True)
        return keys // n, group

    @cached_property
    def fact_means(self) -> FloatArray:
        """One over the prompts asked of each fact; 0 for a fact that was not asked."""
        return np.divide(1.0, self.n_asked, out=np.zeros(self.n_facts), where=self.is_asked)

    def mean_by_fact(self, values: FloatArray) -> FloatArray:
        """The mean over each fact's sampled prompts; 0 for a fact that was not asked."""
        return np.bincount(self.fact, values, self.n_facts) * self.fact_means

    def sampled_weights(self, weights: FloatArray) -> FloatArray:
        """What each asked fact weighs, so that it stands for those that were not asked.

        Those of its relation, if two facts of every relation were asked; else those of all.
        """
        if self.is_asked.all():
            return weights
        stratum = self.strata
        total = np.bincount(stratum, weights)
        asked = np.bincount(stratum, weights * self.is_asked)
        return np.where(self.is_asked, weights * (total / asked)[stratum], 0.0)

    def only(self, facts: BoolArray) -> "Crossed":
        """The sample of a set that has no other facts than these."""
        number, mine = np.cumsum(facts) - 1, facts[self.fact]
        n_failed = None if self.n_failed is None else self.n_failed[facts]
        of_facts = self.relation[facts], self.n_names[facts]
        asked = number[self.fact[mine]], self.template[mine], self.name[mine]
        return Crossed(*of_facts, self.n_templates, *asked, n_failed)

    @cached_property
    def strata(self) -> IntArray:
        """Within what facts stand for each other: relations, or the whole set."""
        asked = np.bincount(self.relation, self.is_asked)
        return self.relation if (asked >= 2).all() else np.zeros_like(self.relation)


def summed(group: IntArray, values: FloatArray, n: int = 0) -> FloatArray:
    """The sum of the values of each group, numbered from 0; of `n` groups at least."""
    return np.bincount(group, values, n).astype(np.float64)


def group_means(group: IntArray, values: FloatArray, n: int = 0) -> FloatArray:
    """The mean of the values of each group, numbered from 0; of an empty one 0."""
    means: FloatArray = summed(group, values, n) / np.maximum(1, np.bincount(group, minlength=n))
    return means


def centred(group: IntArray, values: FloatArray) -> FloatArray:
    """The values less the mean of their group."""
    return values - group_means(group, values)[group]


def spread(group: IntArray, values: FloatArray, n: int = 0) -> FloatArray:
    """The variance of each group's values (divisor n − 1), numbered from 0; 0 of a single one.

    It is half the mean squared difference of two of them.

    >>> spread(np.array([0, 0, 1]), np.array([1.0, 0.0, 1.0])).tolist()
    [0.5, 0.0]
    """
    squares = summed(group, centred(group, values) ** 2, n)
    variance: FloatArray = squares / np.maximum(1, np.bincount(group, minlength=n) - 1)
    return variance
