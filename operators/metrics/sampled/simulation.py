"""Samples of whole answer tables, real or made up: how often the intervals cover the full run.

Shown by `benchmarks/bench_estimate.py`, and tested at a small size.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from operators.metrics.sampled.agreement import consist
from operators.metrics.sampled.crossed import Crossed, Estimated, FloatArray, IntArray
from operators.metrics.sampled.fluctuation import fluctuation_sd
from operators.metrics.sampled.means import mean_of_facts, mean_of_prompts
from operators.sampling.budget import allotted
from operators.sampling.turns import square

_N_ANSWERS = 12  # that a made-up model gives, the right one first
_ONE_WORD = 3  # those of the first answers that are one word

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
        return np.array([each.shape[1] for each in self.answers_of])

    @cached_property
    def relation(self) -> IntArray:
        """The relation of each fact."""
        return np.repeat(np.arange(len(self.n_names_of)), [len(n) for n in self.n_names_of])

    @cached_property
    def n_prompts(self) -> IntArray:
        """The prompts of each fact."""
        return self.n_names * self.n_templates[self.relation]

    def sampled(self, share: float, seed: int) -> tuple[Crossed, IntArray]:
        """A sample of the prompts, and its answers."""
        squares = [
            square(names, int(n), seed=seed, relation_id=str(number))
            for number, (names, n) in enumerate(zip(self.n_names_of, self.n_templates, strict=True))
        ]
        place = np.concatenate([each.place_in_relation for each in squares])
        budget = round(share * int(self.n_prompts.sum()))
        turns = allotted(budget, self.n_prompts, self.relation, place, seed=seed)
        starts = np.searchsorted(self.relation, np.arange(len(squares) + 1))
        parts: list[tuple[IntArray, ...]] = []
        for number, each in enumerate(squares):
            own = turns[starts[number] : starts[number + 1]]
            fact = np.repeat(np.arange(len(own)), own)
            turn = np.arange(len(fact)) - np.repeat(np.cumsum(own) - own, own)
            asked = each.at(fact, turn)
            said = self.answers_of[number][fact, asked.template, asked.name]
            parts.append((fact + starts[number], asked.template, asked.name, said))
        fact, template, name, said = (np.concatenate(each) for each in zip(*parts, strict=True))
        return Crossed(self.relation, self.n_names, self.n_templates, fact, template, name), said

    def answers(self) -> pl.DataFrame:
        """All of them, as matched answers of a run."""
        sample, said = self.sampled(1.0, 0)
        relation = sample.cell_relation
        return pl.DataFrame(
            {
                "relation_id": [f"P{r}" for r in relation],
                "pair_id": [f"t{f:06d}" for f in sample.fact],
                "template_id": [
                    f"P{r}.{t:03d}" for r, t in zip(relation, sample.template, strict=True)
                ],
                "subject_index": sample.name,
                "key": [f"\x1f{each}\x1f" for each in said],
                "n_lemmas": np.where(said < _ONE_WORD, 1, 2),
                "correct": said == 0,
            }
        )


def made_up(
    *,
    n_relations: int,
    n_facts: int,
    n_templates: int,
    most_names: int,
    seed: int,
    sd_fact: float = 3.0,
) -> Made:
    """Answers of a made-up model: right with a chance that is logistic in all that they depend on.

    Effects are normal: relations .8, facts `sd_fact`, templates 1, facts × templates 1, names .7
    (standard deviations, in logits). A wrong answer is the fact's favourite one, or one of nine.
    `n_facts` is the mean number of a relation's facts, which are .4 to 1.6 times as many.
    """
    rng = np.random.default_rng(seed)
    answers, names = zip(
        *(
            _relation(
                rng, int(n_facts * rng.uniform(0.4, 1.6)) + 2, n_templates, most_names, sd_fact
            )
            for _ in range(n_relations)
        ),
        strict=True,
    )
    return Made(answers, names)


def _relation(
    rng: np.random.Generator, n_facts: int, n_templates: int, most_names: int, sd_fact: float
) -> tuple[IntArray, IntArray]:
    n_names = rng.integers(1, most_names + 1, n_facts)
    shape = (n_facts, n_templates, int(n_names.max()))
    logit = rng.normal(-0.5, 0.8) + rng.normal(0, sd_fact, (n_facts, 1, 1))
    logit = logit + rng.normal(0, 1, (1, n_templates, 1)) + rng.normal(0, 1, (*shape[:2], 1))
    logit = logit + rng.normal(0, 0.7, (n_facts, 1, shape[2]))
    is_right = rng.random(shape) < 1 / (1 + np.exp(-logit))
    is_favourite = rng.random(shape) < rng.beta(1, 1.5, (n_facts, 1, 1))
    wrong = np.where(is_favourite, 1, rng.integers(2, _N_ANSWERS, shape))
    return np.where(is_right, 0, wrong).astype(np.int8), n_names


def truth(made: Made) -> dict[str, float]:
    """What the full run gives, from the whole tables."""
    accuracy: list[FloatArray] = []
    matching: list[FloatArray] = []
    spread = one_word = 0.0
    for answers, n_names in zip(made.answers_of, made.n_names_of, strict=True):
        n_facts, n_templates, most = answers.shape
        there = (np.arange(most) < n_names[:, None])[:, None, :]
        by_template = ((answers == 0) & there).sum(2) / n_names[:, None]
        accuracy.append(by_template.mean(1))
        of_names = (by_template * (1 - by_template)).sum(0).mean() / n_facts**2
        weight = (n_facts / len(made.n_names)) ** 2
        spread += weight * (by_template.mean(0).var() + of_names)
        one_word += float(((answers < _ONE_WORD) & there).sum())
        counts = [((answers == each) & there).sum((1, 2)) for each in range(int(answers.max()) + 1)]
        n = n_names * n_templates
        matching.append(sum(c * (c - 1.0) for c in counts) / (n * (n - 1.0)))
    return {
        "acc_at_1": float(np.concatenate(accuracy).mean()),
        "one_word_ratio": one_word / float(made.n_prompts.sum()),
        "consist": float(np.concatenate(matching).mean()),
        "fluctuation_sd": float(np.sqrt(spread)),
    }


def estimated(sample: Crossed, said: IntArray) -> dict[str, Estimated]:
    """All estimates of a sample."""
    correct = (said == 0).astype(np.float64)
    keys = sample.fact * (int(said.max()) + 1) + said
    _, group, count = np.unique(keys, return_inverse=True, return_counts=True)
    return {
        "acc_at_1": mean_of_facts(sample, correct),
        "one_word_ratio": mean_of_prompts(sample, (said < _ONE_WORD).astype(np.float64)),
        "consist": consist(sample, (count[group] - 1).astype(np.float64)),
        "fluctuation_sd": fluctuation_sd(sample, correct),
    }


def coverage(made: Made, share: float, *, n_samples: int) -> pl.DataFrame:
    """How often the intervals of samples cover the full run, of the schema COVERAGE.

    `n` counts samples with an interval; `sd` is the standard deviation of the values, and
    `bias_in_sd` their mean error, over that.
    """
    known = truth(made)
    found = [estimated(*made.sampled(share, seed)) for seed in range(n_samples)]
    rows = [
        (name, share, value, *_covered([each[name] for each in found], value))
        for name, value in known.items()
    ]
    return pl.DataFrame(rows, schema=COVERAGE, orient="row")


def _covered(
    found: list[Estimated], value: float
) -> tuple[int, float | None, float | None, float | None, float | None]:
    intervals = np.array(list(_intervals(found)), dtype=np.float64).reshape(-1, 3)
    if not len(intervals):
        return 0, None, None, None, None
    middle, low, high = intervals.T
    close = 1e-12
    covered = float(((low - close <= value) & (value <= high + close)).mean())
    sd = float(middle.std())
    bias = float(middle.mean() - value) / sd if sd > close else 0.0
    return len(intervals), covered, float((high - low).mean() / 2), sd, bias


def _intervals(found: list[Estimated]) -> Iterator[tuple[float, float, float]]:
    for value, low, high, _ in found:
        if value is not None and low is not None and high is not None:
            yield value, low, high
