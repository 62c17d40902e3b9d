"""Simulated earlier runs as controls: their gain, and whether intervals cover."""

from collections.abc import Iterator

import numpy as np
import polars as pl
from _simulation import (
    ANY,
    N_ANSWERS,
    Logits,
    Made,
    Sizes,
    drawn_answers,
    drawn_logit,
    drawn_relations,
)

from factsweep.operators.estimates.control import (
    PARTS,
    Control,
    ControlledEstimate,
    controlled_mean,
    parts,
)
from factsweep.operators.estimates.crossed import CrossedSample, FloatArray, IntArray

GAIN = pl.Schema(
    {
        "share": pl.Float64,
        "covered": pl.Float64,
        "half_width": pl.Float64,
        "sd": pl.Float64,
        "bias_in_sd": pl.Float64,
        "gain": pl.Float64,
    }
)


def two_models(sizes: Sizes, *, seed: int, alike: float, logits: Logits = ANY) -> tuple[Made, Made]:
    """The answers of `made_up`, and those of another model to the same prompts.

    `alike` is the correlation of what their chances are made of; with the same chances they still
    answer by different luck.
    """
    models: tuple[list[tuple[IntArray, IntArray]], ...] = ([], [])
    other = np.random.default_rng([seed, 1])
    for rng, logit, n_names in drawn_relations(sizes, seed, logits):
        unrelated = drawn_logit(other, logit.shape, logits) - logits.mean
        mixed = np.sqrt(alike) * (logit - logits.mean) + np.sqrt(1 - alike) * unrelated
        models[0].append(drawn_answers(rng, logit, n_names))
        models[1].append(drawn_answers(other, logits.mean + mixed, n_names))
    first, second = (Made(*zip(*model, strict=True)) for model in models)
    return first, second


def later(model: Made, share: float, seed: int) -> Made:
    """A share of the answers replaced by random ones."""
    rng = np.random.default_rng(seed)
    return Made(
        tuple(_changed(rng, answers, share) for answers in model.answers_of), model.n_names_of
    )


def _changed(rng: np.random.Generator, answers: IntArray, share: float) -> IntArray:
    other = rng.integers(0, N_ANSWERS, answers.shape)
    return np.where(rng.random(answers.shape) < share, other, answers).astype(np.int8)


class Known:
    """A simulated run's answers to the prompts of any sample."""

    def __init__(self, earlier: Made) -> None:
        tables = zip(earlier.answers_of, earlier.n_names_of, strict=True)
        self._earlier = earlier
        self._of = [_split(*table) for table in tables]
        self._means = np.concatenate([means for means, _ in self._of])
        self._starts = np.searchsorted(earlier.relation, np.arange(len(self._of)))

    def of(self, sample: CrossedSample) -> Control:
        """As the control of a sample of the same prompts."""
        within = np.zeros((len(sample.fact), len(PARTS)))
        fact = sample.fact - self._starts[sample.cell_relation]
        for number, (_, split) in enumerate(self._of):
            is_relation = sample.cell_relation == number
            within[is_relation] = split[
                fact[is_relation], sample.template[is_relation], sample.name[is_relation]
            ]
        return Control(self._means, within, np.ones(sample.n_facts, np.bool_))


def _split(answers: IntArray, n_names: IntArray) -> tuple[FloatArray, FloatArray]:
    """The facts' means, and the parts of each prompt: facts × templates × names × PARTS."""
    is_name = np.broadcast_to(
        (np.arange(answers.shape[2]) < n_names[:, None])[:, None, :], answers.shape
    )
    fact, template, name = np.nonzero(is_name)
    right = (answers[is_name] == 0).astype(np.float64)
    split = np.zeros((*answers.shape, len(PARTS)), np.float32)
    split[is_name] = parts(fact, template, name, right)
    return np.bincount(fact, right) / np.bincount(fact), split


def estimated(model: Made, control: Known, share: float, seed: int) -> ControlledEstimate:
    """Acc@1 from a sample, with a control."""
    sample, answers = model.sampled(share, seed)
    right = (answers == 0).astype(np.float64)
    return controlled_mean(sample, right, np.ones(sample.n_facts), control.of(sample), seed=seed)


def gains(
    model: Made,
    earlier: Made,
    shares: tuple[float, ...],
    *,
    n_samples: int,
) -> pl.DataFrame:
    """What samples with a control say of Acc@1, of the schema GAIN: one row per share.

    `gain` is the mean number of effective prompts of each prompt that was asked.
    """
    control, truth = Known(earlier), _accuracy(model)
    n_prompts = int(model.n_prompts.sum())
    rows = []
    for share in shares:
        estimates = [estimated(model, control, share, seed) for seed in range(n_samples)]
        value, low, high = np.array([estimate.estimate[:3] for estimate in estimates]).T
        n = round(share * n_prompts)
        covered = float(((low <= truth) & (truth <= high)).mean())
        sd, half = float(value.std()), float((high - low).mean() / 2)
        gain = float(np.mean(list(_known(estimate.n_effective for estimate in estimates)))) / n
        rows.append((share, covered, half, sd, float(value.mean() - truth) / sd, gain))
    return pl.DataFrame(rows, schema=GAIN, orient="row")


def _known(numbers: Iterator[float | None]) -> Iterator[float]:
    return (number for number in numbers if number is not None)


def _accuracy(model: Made) -> float:
    sizes = np.array([len(n_names) for n_names in model.n_names_of])
    means = np.array([float(accuracies.mean()) for accuracies in model.accuracies])
    return float(means @ sizes / sizes.sum())
