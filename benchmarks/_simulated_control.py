"""Made-up earlier runs of made-up answers: what a control is worth, and whether intervals hold."""

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
    Controlled,
    controlled_mean,
    parts,
)
from factsweep.operators.estimates.crossed import Crossed, FloatArray, IntArray

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
        own = drawn_logit(other, logit.shape, logits) - logits.mean
        mixed = np.sqrt(alike) * (logit - logits.mean) + np.sqrt(1 - alike) * own
        models[0].append(drawn_answers(rng, logit, n_names))
        models[1].append(drawn_answers(other, logits.mean + mixed, n_names))
    first, second = (Made(*zip(*model, strict=True)) for model in models)
    return first, second


def later(made: Made, share: float, seed: int) -> Made:
    """The answers of which a share has changed; any of those that there are."""
    rng = np.random.default_rng(seed)
    return Made(tuple(_changed(rng, each, share) for each in made.answers_of), made.n_names_of)


def _changed(rng: np.random.Generator, answers: IntArray, share: float) -> IntArray:
    other = rng.integers(0, N_ANSWERS, answers.shape)
    return np.where(rng.random(answers.shape) < share, other, answers).astype(np.int8)


class Known:
    """What a made-up run says of the prompts of any sample."""

    def __init__(self, earlier: Made) -> None:
        tables = zip(earlier.answers_of, earlier.n_names_of, strict=True)
        self._earlier = earlier
        self._of = [_split(*each) for each in tables]
        self._means = np.concatenate([means for means, _ in self._of])
        self._starts = np.searchsorted(earlier.relation, np.arange(len(self._of)))

    def of(self, sample: Crossed) -> Control:
        """As the control of a sample of the same prompts."""
        within = np.zeros((len(sample.fact), len(PARTS)))
        fact = sample.fact - self._starts[sample.cell_relation]
        for number, (_, split) in enumerate(self._of):
            mine = sample.cell_relation == number
            within[mine] = split[fact[mine], sample.template[mine], sample.name[mine]]
        return Control(self._means, within, np.ones(sample.n_facts, np.bool_))


def _split(answers: IntArray, n_names: IntArray) -> tuple[FloatArray, FloatArray]:
    """The facts' means, and the parts of each prompt: facts × templates × names × PARTS."""
    there = np.broadcast_to(
        (np.arange(answers.shape[2]) < n_names[:, None])[:, None, :], answers.shape
    )
    fact, template, name = np.nonzero(there)
    right = (answers[there] == 0).astype(np.float64)
    split = np.zeros((*answers.shape, len(PARTS)), np.float32)
    split[there] = parts(fact, template, name, right)
    return np.bincount(fact, right) / np.bincount(fact), split


def estimated(made: Made, known: Known, share: float, seed: int) -> Controlled:
    """Acc@1 from a sample, with a control."""
    sample, said = made.sampled(share, seed)
    right = (said == 0).astype(np.float64)
    return controlled_mean(sample, right, np.ones(sample.n_facts), known.of(sample), seed=seed)


def gains(
    made: Made,
    earlier: Made,
    shares: tuple[float, ...],
    *,
    n_samples: int,
) -> pl.DataFrame:
    """What samples with a control say of Acc@1, of the schema GAIN: one row per share.

    `gain` is the mean number of effective prompts of each prompt that was asked.
    """
    known, truth = Known(earlier), _accuracy(made)
    n_prompts = int(made.n_prompts.sum())
    rows = []
    for share in shares:
        found = [estimated(made, known, share, seed) for seed in range(n_samples)]
        value, low, high = np.array([each.found[:3] for each in found]).T
        n = round(share * n_prompts)
        covered = float(((low <= truth) & (truth <= high)).mean())
        sd, half = float(value.std()), float((high - low).mean() / 2)
        gain = float(np.mean(list(_known(each.n_effective for each in found)))) / n
        rows.append((share, covered, half, sd, float(value.mean() - truth) / sd, gain))
    return pl.DataFrame(rows, schema=GAIN, orient="row")


def _known(numbers: Iterator[float | None]) -> Iterator[float]:
    return (each for each in numbers if each is not None)


def _accuracy(made: Made) -> float:
    sizes = np.array([len(each) for each in made.n_names_of])
    means = np.array([float(each.mean()) for each in made.accuracies])
    return float(means @ sizes / sizes.sum())
