"""Samples of whole answer tables, real or made up: how often the intervals cover the full run.

Shown by `benchmarks/bench_estimate.py`, and tested at a small size.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit

from factsweep.operators.estimates.choice import allot_prompts, square
from factsweep.operators.estimates.crossed import CrossedSample, FloatArray, IntArray
from factsweep.operators.estimates.intervals import IntervalEstimate
from factsweep.operators.estimates.means import consist, weighted_mean
from factsweep.operators.estimates.table import (
    fluctuation_sd,
)

N_ANSWERS = 12  # that a made-up model gives, the right one first
_CLOSE = 1e-12
ONE_WORD = 3  # those of the first answers that are one word

COVERAGE = pl.Schema(
    {
        "metric": pl.String,
        "share": pl.Float64,
        "truth": pl.Float64,
        "n": pl.Int64,
        "covered": pl.Float64,
        "half_width": pl.Float64,
        "sd": pl.Float64,
        "bias_in_sd": pl.Float64,
    }
)


@dataclass(frozen=True)
class Made:
    """All answers of a full run: for each relation facts × templates × names, as numbers.

    Two answers of the same number match, 0 is right, and those below 3 are one word. `n_names`
    says how many names each fact has; answers behind them mean nothing.
    """

    answers_of: tuple[IntArray, ...]
    n_names_of: tuple[IntArray, ...]

    @cached_property
    def n_names(self) -> IntArray:
        """The names of each fact of all relations."""
        return np.concatenate(self.n_names_of)

    @cached_property
    def n_templates(self) -> IntArray:
        """The templates of each relation."""
        return np.array([answers.shape[1] for answers in self.answers_of])

    @cached_property
    def relation(self) -> IntArray:
        """The relation of each fact."""
        return np.repeat(np.arange(len(self.n_names_of)), [len(n) for n in self.n_names_of])

    @cached_property
    def n_prompts(self) -> IntArray:
        """The prompts of each fact."""
        return self.n_names * self.n_templates[self.relation]

    @cached_property
    def by_fact(self) -> tuple[FloatArray, ...]:
        """The share of right names of each fact in each template, for each relation."""
        relations = zip(self.answers_of, self.n_names_of, strict=True)
        return tuple(_right(*tables).sum(2) / tables[1][:, None] for tables in relations)

    @cached_property
    def accuracies(self) -> tuple[FloatArray, ...]:
        """The accuracy of each relation's templates in the full run."""
        return tuple(answers.mean(0) for answers in self.by_fact)

    def sampled(self, share: float, seed: int) -> tuple[CrossedSample, IntArray]:
        """A sample of the prompts, and its answers."""
        squares = [
            square(names, int(n), seed=seed, relation_id=str(number))
            for number, (names, n) in enumerate(zip(self.n_names_of, self.n_templates, strict=True))
        ]
        place = np.concatenate([grid.place_in_relation for grid in squares])
        budget = round(share * int(self.n_prompts.sum()))
        laps = allot_prompts(budget, self.n_prompts, self.relation, place, seed=seed)
        starts = np.searchsorted(self.relation, np.arange(len(squares) + 1))
        parts: list[tuple[IntArray, ...]] = []
        for number, grid in enumerate(squares):
            laps_of_relation = laps[starts[number] : starts[number + 1]]
            fact = np.repeat(np.arange(len(laps_of_relation)), laps_of_relation)
            lap = np.arange(len(fact)) - np.repeat(
                np.cumsum(laps_of_relation) - laps_of_relation, laps_of_relation
            )
            cell = grid.at(fact, lap)
            answers = self.answers_of[number][fact, cell.template, cell.name]
            parts.append((fact + starts[number], cell.template, cell.name, answers))
        fact, template, name, answers = (
            np.concatenate(column) for column in zip(*parts, strict=True)
        )
        return CrossedSample(
            self.relation, self.n_names, self.n_templates, fact, template, name
        ), answers

    def answers(self) -> pl.DataFrame:
        """All of them, as matched answers of a run."""
        sample, answers = self.sampled(1.0, 0)
        relation = sample.cell_relation
        return pl.DataFrame(
            {
                "relation_id": [f"P{r}" for r in relation],
                "pair_id": [f"t{f:06d}" for f in sample.fact],
                "template_id": [
                    f"P{r}.{t:03d}" for r, t in zip(relation, sample.template, strict=True)
                ],
                "subject_index": sample.name,
                "key": [f"\x1f{answer}\x1f" for answer in answers],
                "n_lemmas": np.where(answers < ONE_WORD, 1, 2),
                "correct": answers == 0,
            }
        )


@dataclass(frozen=True)
class Logits:
    """Standard deviations of the normal effects in the chance of a right answer."""

    mean: float = -0.5
    relation: float = 0.8
    fact: float = 3.0
    template: float = 1.0
    fact_template: float = 1.0
    name: float = 0.7


ANY = Logits()

# Models with about the Acc@1, the fluctuation's SD and the oracle that the paper prints of
# Llama3-8B (BELIEF, Tables 3 and 7); the maximum is higher in zero-shot, where templates are not
# normal.
LIKE = {
    "zero-shot": Logits(-2.4, relation=0.8, fact=4.0, template=3.0, fact_template=0.3, name=0.3),
    "4-template": Logits(7.0, relation=2.0, fact=11.0, template=0.45, fact_template=0.8, name=0.6),
}


class Sizes(NamedTuple):
    """The size of a simulated set, as in `made_up`."""

    n_relations: int
    n_facts: int
    n_templates: int
    most_names: int


def made_up(
    *,
    n_relations: int,
    n_facts: int,
    n_templates: int,
    most_names: int,
    seed: int,
    logits: Logits = ANY,
) -> Made:
    """Answers of a made-up model: right with a chance that is logistic in the sum of their effects.

    A wrong answer is the fact's favourite one, or one of nine. `n_facts` is the mean number of a
    relation's facts, which are .4 to 1.6 times as many.
    """
    sizes = Sizes(n_relations, n_facts, n_templates, most_names)
    relations = [
        drawn_answers(rng, logit, n) for rng, logit, n in drawn_relations(sizes, seed, logits)
    ]
    return Made(*zip(*relations, strict=True))


def popular(
    sizes: Sizes, seed: int, logits: Logits, *, with_names: float, all_names: bool = False
) -> Made:
    """Answers of a made-up model that knows facts the better the more names they have.

    `with_names` is how far the log-odds, and templates' effects, grow with a fact's names; with
    `all_names` each fact has as many as any.
    """
    rng = np.random.default_rng(seed)
    relations = []
    for _ in range(sizes.n_relations):
        n = int(sizes.n_facts * rng.uniform(0.6, 1.4)) + 2
        n_names = rng.integers(1, sizes.most_names + 1, n)
        if all_names:
            n_names[:] = sizes.most_names
        names = ((n_names - n_names.mean()) / max(n_names.std(), 1e-9))[:, None, None]
        effects = rng.normal(0, logits.template, (1, sizes.n_templates, 1))
        logit = rng.normal(logits.mean, logits.relation) + rng.normal(0, logits.fact, (n, 1, 1))
        logit = logit + with_names * names + effects * (1 + with_names / 2 * names.clip(-1, 1))
        logit = logit + rng.normal(0, logits.fact_template, (n, sizes.n_templates, 1))
        logit = logit + rng.normal(0, logits.name, (n, 1, sizes.most_names))
        relations.append(drawn_answers(rng, logit, n_names))
    return Made(*zip(*relations, strict=True))


def drawn_relations(
    sizes: Sizes, seed: int, logits: Logits
) -> Iterator[tuple[np.random.Generator, FloatArray, IntArray]]:
    """For each relation what answers are drawn with, their log-odds, and the facts' names."""
    rng = np.random.default_rng(seed)
    for _ in range(sizes.n_relations):
        n_facts = int(sizes.n_facts * rng.uniform(0.4, 1.6)) + 2
        n_names = rng.integers(1, sizes.most_names + 1, n_facts)
        yield (
            rng,
            drawn_logit(rng, (n_facts, sizes.n_templates, int(n_names.max())), logits),
            n_names,
        )


def drawn_logit(rng: np.random.Generator, shape: tuple[int, ...], spread: Logits) -> FloatArray:
    """The log-odds of a right answer to each prompt of a relation."""
    n_facts, n_templates, _ = shape
    logit = rng.normal(spread.mean, spread.relation) + rng.normal(0, spread.fact, (n_facts, 1, 1))
    logit = logit + rng.normal(0, spread.template, (1, n_templates, 1))
    logit = logit + rng.normal(0, spread.fact_template, (*shape[:2], 1))
    return np.asarray(logit + rng.normal(0, spread.name, (n_facts, 1, shape[2])))


def drawn_answers(
    rng: np.random.Generator, logit: FloatArray, n_names: IntArray
) -> tuple[IntArray, IntArray]:
    """The answers of a relation to prompts with these log-odds of a right one, and its names."""
    shape = logit.shape
    is_right = rng.random(shape) < expit(logit)
    is_favourite = rng.random(shape) < rng.beta(1, 1.5, (shape[0], 1, 1))
    wrong = np.where(is_favourite, 1, rng.integers(2, N_ANSWERS, shape))
    return np.where(is_right, 0, wrong).astype(np.int8), n_names


def everything(answers: pl.DataFrame) -> pl.DataFrame:
    """What a full run asks of each pair, from its answers."""
    pairs = answers.group_by("relation_id", "pair_id").agg(
        n_names=pl.col("subject_index").n_unique()
    )
    templates = answers.group_by("relation_id").agg(n_templates=pl.col("template_id").n_unique())
    return pairs.join(templates, on="relation_id")


def truth(model: Made) -> dict[str, float]:
    """The numbers of the full run, from the whole tables."""
    relations = [_whole(*tables) for tables in zip(model.answers_of, model.n_names_of, strict=True)]
    n_facts = np.array([len(names) for names in model.n_names_of])
    share = n_facts / n_facts.sum()

    def mean(values: list[float]) -> float:
        return float(share @ values)

    names = share**2 @ [relation.of_names for relation in relations]
    spread = share**2 @ [relation.by_template.var() for relation in relations] + names
    one_word = sum(relation.n_one_word for relation in relations)
    return {
        "acc_at_1": mean([float(relation.by_template.mean()) for relation in relations]),
        "one_word_ratio": one_word / float(model.n_prompts.sum()),
        "consist": mean([relation.consist for relation in relations]),
        "fluctuation_sd": float(np.sqrt(spread)),
    }


class Whole(NamedTuple):
    """A relation's numbers in the full run; `of_names` is the variance from drawing names."""

    by_template: FloatArray
    of_names: float
    n_one_word: int
    consist: float


def _right(answers: IntArray, n_names: IntArray) -> NDArray[np.bool_]:
    is_name = (np.arange(answers.shape[2]) < n_names[:, None])[:, None, :]
    right: NDArray[np.bool_] = (answers == 0) & is_name
    return right


def _whole(answers: IntArray, n_names: IntArray) -> Whole:
    n_facts, n_templates, most = answers.shape
    is_name = (np.arange(most) < n_names[:, None])[:, None, :]
    right = _right(answers, n_names)
    share = right.sum(2) / n_names[:, None]
    counts = [
        ((answers == answer) & is_name).sum((1, 2)) for answer in range(int(answers.max()) + 1)
    ]
    n = n_names * n_templates
    matching = sum(c * (c - 1.0) for c in counts) / (n * (n - 1.0))
    return Whole(
        share.mean(0),
        float((share * (1 - share)).sum(0).mean() / n_facts**2),
        int(((answers < ONE_WORD) & is_name).sum()),
        float(np.mean(matching)),
    )


def estimated(sample: CrossedSample, answers: IntArray) -> dict[str, IntervalEstimate]:
    """All estimates of a sample."""
    correct = (answers == 0).astype(np.float64)
    keys = sample.fact * (int(answers.max()) + 1) + answers
    _, group, count = np.unique(keys, return_inverse=True, return_counts=True)
    one_word, n_prompts = (
        (answers < ONE_WORD).astype(np.float64),
        sample.n_prompts.astype(np.float64),
    )
    return {
        "acc_at_1": weighted_mean(sample, correct, np.ones(sample.n_facts)),
        "one_word_ratio": weighted_mean(sample, one_word, n_prompts),
        "consist": consist(sample, (count[group] - 1).astype(np.float64)),
        "fluctuation_sd": fluctuation_sd(sample, correct),
    }


def coverage(model: Made, share: float, *, n_samples: int) -> pl.DataFrame:
    """How often the intervals of samples cover the full run, of the schema COVERAGE.

    `n` counts samples with an interval; `sd` is the standard deviation of the values, and
    `bias_in_sd` their mean error, over that.
    """
    estimates = [estimated(*model.sampled(share, seed)) for seed in range(n_samples)]
    return counted(truth(model), estimates, share)


def counted(
    true_values: Mapping[str, float],
    estimates: Sequence[Mapping[str, IntervalEstimate]],
    share: float,
) -> pl.DataFrame:
    """How often intervals from samples of a share cover the true value: schema COVERAGE."""
    rows = [
        (name, share, value, *_covered([estimate[name] for estimate in estimates], value))
        for name, value in true_values.items()
    ]
    return pl.DataFrame(rows, schema=COVERAGE, orient="row")


def _covered(
    estimates: list[IntervalEstimate], value: float
) -> tuple[int, float | None, float | None, float | None, float | None]:
    """How many have an interval, how often it covers, half its width; SD and bias of the values."""
    intervals = np.array(list(_intervals(estimates)), dtype=np.float64).reshape(-1, 3)
    if not len(intervals):
        return 0, None, None, None, None
    middle, low, high = intervals.T
    covered = float(((low - _CLOSE <= value) & (value <= high + _CLOSE)).mean())
    half = float((high - low).mean() / 2)
    if np.isnan(middle).all():
        return len(intervals), covered, half, None, None
    sd = float(middle.std())
    bias = float(middle.mean() - value) / sd if sd > _CLOSE else 0.0
    return len(intervals), covered, half, sd, bias


def _intervals(estimates: list[IntervalEstimate]) -> Iterator[tuple[float, float, float]]:
    """The value (NaN where there is a bracket alone) and the ends of each interval."""
    for value, low, high, _ in estimates:
        if low is not None and high is not None:
            yield np.nan if value is None else value, low, high
