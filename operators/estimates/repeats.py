"""What demonstrations and decoding add to the variance of answers, from prompts answered again.

The answer to prompt p is what the prompt decides, plus what the demonstrations drawn for it add,
plus the noise of decoding; both are drawn anew, with the mean 0, by each run. So half the squared
difference d of two answers to the same prompt estimates what was drawn twice (two observations per
class: Searle, Casella and McCulloch 1992, chapter 3):

    the same demonstrations    ½ E d² = decoding
    others                     ½ E d² = demonstrations + decoding

In the table of one run, what demonstrations add is part of other rows. Those of a prompt's own
(scope=prompt) are part of the rest. Shared ones make all prompts of a template, or of a relation,
easier or harder together: half of each component of d (`variance.split`) is what the draw adds to
that component. With d to a run of scope=prompt, a component is that of the shared draw alone, in
full, but for the rest. What is found in a row is taken out of it, with the same part of its errors.

Draws of different groups (templates, relations, all prompts, or each prompt by itself) are
independent, so that half of Σ over groups of (Σ weight · d)² is what new draws, and the sample, add
to the variance of Acc@1: that of a sum over clusters, of a known mean (Cochran 1977, chapter 9).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.estimates.crossed import Crossed, FloatArray
from factsweep.operators.estimates.fluctuations.components import components
from factsweep.operators.estimates.table import Scored, scored_twice
from factsweep.operators.estimates.variance import SOURCES, VARIANCE, split

Scope = Literal["shared", "prompt"]
# For how many prompts demonstrations are drawn at once.
Drawn = Literal["all", "relation", "template", "prompt"]

LEAST = 50  # prompts answered twice: fewer say next to nothing of rare changes
_REST = SOURCES.index("rest")


class Repeat(NamedTuple):
    """Second answers to the same prompts, with prompt_id and what `scored` reads.

    `scope` is how other demonstrations were drawn for them; null: they had the same. `first` are
    the first answers; null: those of the sample.
    """

    answers: pl.DataFrame
    scope: Scope | None
    first: pl.DataFrame | None = None


class Twice(NamedTuple):
    """What the second answers to the same prompts score more than the first."""

    sample: Crossed
    more: FloatArray
    scope: Scope | None

    @property
    def weights(self) -> FloatArray:
        """What each prompt weighs in the mean over all facts."""
        everyone = np.ones(self.sample.n_facts) / self.sample.n_facts
        of_facts = self.sample.sampled_weights(everyone) * self.sample.fact_means
        return of_facts[self.sample.fact]

    @property
    def half_square(self) -> float:
        """Half the mean squared difference."""
        return float(self.weights @ self.more**2) / 2


class Share(NamedTuple):
    """What demonstrations add to the variance of an answer, to each of SOURCES, and to Acc@1."""

    variance: float
    of_sources: FloatArray
    error: float


def twice(pairs: pl.DataFrame, sample: pl.DataFrame, second: Repeat) -> Twice | None:
    """The prompts that were answered twice, of tables as for `scored_twice`; null: too few."""
    first = sample if second.first is None else second.first
    if (both := scored_twice(pairs, first, second.answers, LEAST)) is None:
        return None
    one, other = both
    return Twice(one.sample, other.correct - one.correct, second.scope)


def decoding(again: Sequence[Twice]) -> float | None:
    """The variance of decoding, from answers to the same texts; null: there are none."""
    if not again:
        return None
    n = [len(each.more) for each in again]
    return float(np.average([each.half_square for each in again], weights=n))


def demonstrations(others: Sequence[Twice], drawn: Drawn, noise: float) -> Share | None:
    """What demonstrations add, from answers with other ones; null: nothing tells.

    `noise` is the variance of decoding.
    """
    found = [share for each in others if (share := _share(each, drawn, noise)) is not None]
    if not found:
        return None
    variances, of_sources, errors = zip(*found, strict=True)
    return Share(float(np.mean(variances)), np.mean(of_sources, axis=0), float(np.mean(errors)))


def _share(found: Twice, drawn: Drawn, noise: float) -> Share | None:
    variance, weights = found.half_square - noise, found.weights
    group = {
        "all": np.zeros_like(found.sample.fact),
        "relation": found.sample.cell_relation,
        "template": found.sample.in_template,
        "prompt": np.arange(len(found.sample.fact)),
    }[drawn]
    sums = float((np.bincount(group, weights * found.more) ** 2).sum())
    squares = float(weights @ weights)
    of_sources = np.zeros(len(SOURCES))
    if drawn == "prompt":
        of_sources[_REST] = variance
        return Share(variance, of_sources, sums / 2 - noise * squares)
    if (within := components(found.sample, found.more)) is None:
        return None
    parts = split(found.sample, found.more, within)
    if found.scope == "prompt":
        parts[_REST] -= variance + 2 * noise
        return Share(variance, parts, sums - (variance + 2 * noise) * squares)
    parts[_REST] -= 2 * noise
    return Share(variance, parts / 2, sums / 2 - noise * squares)


def with_repeats(
    rows: pl.DataFrame,
    found: Scored,
    pairs: pl.DataFrame,
    drawn: Drawn | None,
    repeats: Sequence[Repeat],
) -> pl.DataFrame:
    """Add the rows `demonstrations` and `decoding` to a table VARIANCE, taken out of the others.

    `drawn` is null where prompts have no demonstrations. What is not known is null, with the reason
    in `why`.
    """
    if rows.is_empty():
        return rows
    scopes = [each.scope for each in repeats]
    both = [each for second in repeats if (each := twice(pairs, found.answers, second))]
    noise = decoding([each for each in both if each.scope is None])
    others = [each for each in both if each.scope is not None]
    share = None if drawn is None else demonstrations(others, drawn, noise or 0.0)
    whys = {
        "demonstrations": None if share else _no_demonstrations(drawn, scopes, bool(others)),
        "decoding": None if noise is not None else _no_decoding(scopes, share is not None),
    }
    return _assembled(rows, share, noise, whys)


def _no_demonstrations(drawn: Drawn | None, scopes: Sequence[Scope | None], enough: bool) -> str:
    if drawn is None:
        return "the prompts have none"
    place = "the rest" if drawn == "prompt" else "the other rows"
    if enough:
        return f"no fact was asked twice with other ones, and they are part of {place}"
    if any(scopes):
        return (
            f"fewer than {LEAST} prompts were also asked with other ones (sample_seed= asks the "
            f"same), and they are part of {place}"
        )
    return (
        "no run of another seed or prompt.scope was given (beside=RUN), and they are part of "
        f"{place}"
    )


def _no_decoding(scopes: Sequence[Scope | None], has_demonstrations: bool) -> str:
    place = "the rest and of demonstrations" if has_demonstrations else "the rest"
    if None in scopes:
        return f"fewer than {LEAST} prompts were answered twice, and it is part of {place}"
    return (
        "no prompt was answered twice, by the canary of a full run or in a repetition "
        f"(beside=RUN), and it is part of {place}"
    )


def _assembled(
    rows: pl.DataFrame, share: Share | None, noise: float | None, whys: dict[str, str | None]
) -> pl.DataFrame:
    """The rows without what is in the two new ones, which are behind them."""
    variance = rows["variance"].to_numpy()
    taken = np.zeros((2, len(variance)))
    taken[1, _REST] = min(noise or 0.0, variance[_REST])
    if share is not None:
        taken[0] = np.clip(share.of_sources, 0.0, variance - taken[1])
    parts = np.divide(taken, variance, out=np.zeros_like(taken), where=variance > 0)
    full, other = (rows[name].to_numpy() for name in ("full_error", "other_error"))
    kept = 1 - parts.sum(axis=0)
    left = (variance - taken.sum(axis=0), full * kept, other * kept)
    known = rows.with_columns(map(pl.Series, ("variance", "full_error", "other_error"), left))
    new: list[tuple[float | None, ...]] = [(None,) * 3, (None,) * 3]
    if share is not None:
        new[0] = (max(0.0, share.variance), parts[0] @ full, max(0.0, share.error))
    if noise is not None:
        new[1] = (noise, parts[1] @ full, parts[1] @ other)
    added = [(name, *new[number], why) for number, (name, why) in enumerate(whys.items())]
    return pl.concat([known, pl.DataFrame(added, schema=VARIANCE, orient="row")])
