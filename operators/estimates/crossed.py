"""A sample of a crossed design (fact × template × name), and sums, means, variances by group."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class CrossedSample:
    """The sampled prompts, one per row of `fact`, `template` and `name`; all are numbers.

    `relation` and `n_names` have one row per fact of the full run, `n_templates` one per relation.
    Templates are numbered from 0 in each relation. `n_failed` counts the prompts of each fact
    without an answer, which the full run's numbers lack, too; null: none.
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
        """The number of facts of the full run."""
        return len(self.relation)

    @cached_property
    def n_prompts(self) -> IntArray:
        """The number of each fact's prompts with an answer in the full run."""
        n_prompts = self.n_names * self.n_templates[self.relation]
        return n_prompts if self.n_failed is None else n_prompts - self.n_failed

    @cached_property
    def n_asked(self) -> IntArray:
        """The number of each fact's sampled prompts."""
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
    def unsampled_share(self) -> float:
        """The share of the full run's prompts outside the sample."""
        return 1 - len(self.fact) / int(self.n_prompts.sum())

    @cached_property
    def cell_relation(self) -> IntArray:
        """The relation of each sampled prompt."""
        return self.relation[self.fact]

    @cached_property
    def in_template(self) -> IntArray:
        """A number for each template of the set, relation by relation."""
        starts = np.concatenate([[0], np.cumsum(self.n_templates)])
        return starts[self.cell_relation] + self.template

    @cached_property
    def fact_template(self) -> tuple[IntArray, IntArray]:
        """The sampled (fact, template): the fact of each, and the index of each prompt's."""
        return self._groups(self.template, int(self.n_templates.max()))

    @cached_property
    def fact_name(self) -> tuple[IntArray, IntArray]:
        """The sampled (fact, name): the fact of each, and the index of each prompt's."""
        return self._groups(self.name, int(self.n_names.max()))

    def _groups(self, number: IntArray, n: int) -> tuple[IntArray, IntArray]:
        keys, group = np.unique(self.fact * n + number, return_inverse=True)
        return keys // n, group

    @cached_property
    def fact_means(self) -> FloatArray:
        """One over the number of each fact's sampled prompts; 0 without any."""
        return np.divide(1.0, self.n_asked, out=np.zeros(self.n_facts), where=self.is_asked)

    def mean_by_fact(self, values: FloatArray) -> FloatArray:
        """The mean over each fact's sampled prompts; 0 without any."""
        return np.bincount(self.fact, values, self.n_facts) * self.fact_means

    def sampled_weights(self, weights: FloatArray) -> FloatArray:
        """The weights of the sampled facts, which stand for all facts of their stratum."""
        if self.is_asked.all():
            return weights
        stratum = self.strata
        total = np.bincount(stratum, weights)
        sampled = np.bincount(stratum, weights * self.is_asked)
        return np.where(self.is_asked, weights * (total / sampled)[stratum], 0.0)

    def select_facts(self, facts: BoolArray) -> "CrossedSample":
        """The sample of a set without the other facts."""
        number, is_kept = np.cumsum(facts) - 1, facts[self.fact]
        n_failed = None if self.n_failed is None else self.n_failed[facts]
        of_facts = self.relation[facts], self.n_names[facts]
        prompts = number[self.fact[is_kept]], self.template[is_kept], self.name[is_kept]
        return CrossedSample(*of_facts, self.n_templates, *prompts, n_failed)

    @cached_property
    def strata(self) -> IntArray:
        """The stratum of each fact: its relation; 0 if a relation has under two sampled facts."""
        n_sampled = np.bincount(self.relation, self.is_asked)
        return self.relation if (n_sampled >= 2).all() else np.zeros_like(self.relation)


def sum_by_group(group: IntArray, values: FloatArray, n: int = 0) -> FloatArray:
    """The sum of each group's values, for groups 0 to at least `n` − 1."""
    return np.bincount(group, values, n).astype(np.float64)


def group_means(group: IntArray, values: FloatArray, n: int = 0) -> FloatArray:
    """The mean of each group's values; 0 for an empty group."""
    means: FloatArray = sum_by_group(group, values, n) / np.maximum(
        1, np.bincount(group, minlength=n)
    )
    return means


def centre_by_group(group: IntArray, values: FloatArray) -> FloatArray:
    """The values less the mean of their group."""
    return values - group_means(group, values)[group]


def spread(group: IntArray, values: FloatArray, n: int = 0) -> FloatArray:
    """The variance of each group's values (divisor n − 1); 0 for a single value.

    >>> spread(np.array([0, 0, 1]), np.array([1.0, 0.0, 1.0])).tolist()
    [0.5, 0.0]
    """
    squares = sum_by_group(group, centre_by_group(group, values) ** 2, n)
    variance: FloatArray = squares / np.maximum(1, np.bincount(group, minlength=n) - 1)
    return variance
