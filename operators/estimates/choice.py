"""The prompts of a budget: the laps in which facts are asked, balanced over templates and names.

A setting is a crossed design: each fact of a relation is asked in each of its T templates under
each of its N names. Facts of as many names are taken in random order in blocks of T, and a block
is a Latin square: in each lap its fact number j gets template number (j + shift) mod T of the
block's own random order. So in every lap a whole block asks each template once, and two facts of
different blocks meet other pairs of templates. The shifts of a block are T x N numbers in random
order, each N times. Whenever a fact meets a template again, it is asked under the next of its
names, the first being drawn at random: after T x N laps each (template, name) was asked once.

For a single fact the prompts of its first laps are thus a simple random sample of its prompts: two
of them share a template or a name as often as any two of its prompts do. A stricter order, all
templates once before any twice and one name after the other, would balance a little better, but
then the first two prompts of a fact are never two of one name, and Consist is biased (by .003 on
made-up answers).

Source: Latin squares as in Cochran and Cox 1957, chapter 4.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.estimates.crossed import IntArray
from factsweep.operators.seeds import Keys, generator, mix


class Lap(NamedTuple):
    """What is asked: the number of the template, and of the name."""

    template: IntArray
    name: IntArray


class Square(NamedTuple):
    """A relation's facts in blocks, with the order of templates and of shifts in each block.

    One number per fact: `n_names`, its place in the random order of the relation's facts, its
    block, its place in it, and a random number. `templates` is blocks × templates; `shifts` and
    `visits`, how often the shift came before, are lists of blocks.
    """

    n_names: IntArray
    place_in_relation: IntArray
    block: IntArray
    place: IntArray
    random: Keys
    templates: IntArray
    starts: IntArray
    shifts: IntArray
    visits: IntArray

    def at(self, fact: IntArray, lap: IntArray) -> Lap:
        """The prompts that facts (by number) are asked in their laps, which start at 0."""
        block = self.block[fact]
        row = self.starts[block] + lap
        column = (self.place[fact] + self.shifts[row]) % self.templates.shape[1]
        template = self.templates[block, column]
        first = mix(self.random[fact] + template.astype(np.uint64)) >> np.uint64(32)
        name = (first.astype(np.int64) + self.visits[row]) % self.n_names[fact]
        return Lap(template, name)


def square(n_names: IntArray, n_templates: int, *, seed: int, relation_id: str) -> Square:
    """Put a relation's facts, each with its number of names, into blocks."""
    rng = generator(seed, "turns", relation_id)  # another word would draw otherwise
    order = rng.permutation(len(n_names))
    block, place = (np.zeros(len(n_names), np.int64) for _ in range(2))
    names_of: list[int] = []  # of each block
    for n in np.unique(n_names):
        members = order[n_names[order] == n]
        number = np.arange(len(members))
        block[members] = len(names_of) + number // n_templates
        place[members] = number % n_templates
        names_of += [int(n)] * -(-len(members) // n_templates)
    orders = [_shifts(n_templates, n, rng) for n in names_of]
    return Square(
        n_names,
        place_in_relation=np.argsort(order),
        block=block,
        place=place,
        random=rng.integers(2**63, size=len(n_names), dtype=np.uint64),
        templates=np.argsort(rng.random((len(names_of), n_templates)), axis=1),
        starts=np.cumsum([0, *(len(shifts) for shifts, _ in orders)])[:-1],
        shifts=np.concatenate([shifts for shifts, _ in orders]),
        visits=np.concatenate([visits for _, visits in orders]),
    )


def _shifts(n_templates: int, n_names: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """A random order in which each shift stands n_names times, and how often each came before."""
    shifts = rng.permutation(n_templates * n_names) % n_templates
    by_shift = np.argsort(shifts, kind="stable")
    visits = np.empty(len(shifts), np.int64)
    visits[by_shift] = np.tile(np.arange(n_names), n_templates)
    return shifts, visits


# Facts are asked in two laps at once: a pair of answers is the least that says how far a fact's
# answers vary, and that Consist is defined for.
LAPS_AT_ONCE = 2


def allotted(
    budget: int, n_prompts: IntArray, relation: IntArray, place_in_relation: IntArray, *, seed: int
) -> IntArray:
    """How many of its prompts each fact is asked, so that at most `budget` are asked in all.

    Facts of all relations get laps in proportion, two at once, each its first two before any gets
    more; `place_in_relation` is their random order. A larger budget contains a smaller one.
    """
    if budget >= n_prompts.sum():
        return n_prompts.copy()
    most = int(n_prompts.max()) // LAPS_AT_ONCE + 1
    n_pairs = bisect_right(  # the most pairs of laps that all facts can have
        range(1, most), budget, key=lambda n: np.minimum(LAPS_AT_ONCE * n, n_prompts).sum()
    )
    laps = np.minimum(LAPS_AT_ONCE * n_pairs, n_prompts)
    order = in_proportion(relation, place_in_relation, seed)
    more = np.minimum(LAPS_AT_ONCE, n_prompts - laps)[order]
    laps[order] += np.where(np.cumsum(more) <= budget - laps.sum(), more, 0)
    return laps


def in_proportion(relation: IntArray, place: IntArray, seed: int) -> IntArray:
    """The facts in an order of which every beginning has the relations' share of each."""
    sizes = np.bincount(relation)
    start = generator(seed, "budget").random(len(sizes))
    return np.argsort((place + start[relation]) / sizes[relation], kind="stable")


@dataclass(frozen=True)
class Relation:
    """What a relation's prompts are crossed of: pairs (pair_id, n_names) and template_ids, sorted.

    `is_crossed` says whether each pair has each template under each of its names.
    """

    pairs: pl.DataFrame
    templates: pl.Series
    is_crossed: bool


def relation(prompts: pl.DataFrame) -> Relation:
    """Read the facts, names and templates off a relation's prompts."""
    pairs = prompts.group_by("pair_id").agg(n_names=pl.col("subject_index").n_unique())
    pairs = pairs.with_columns(pl.col("n_names").cast(pl.Int64)).sort("pair_id")
    templates = prompts["template_id"].unique().sort()
    whole = int(pairs["n_names"].sum()) * len(templates)
    last = prompts["subject_index"].max()
    fits = last is None or int(str(last)) < int(pairs["n_names"].to_numpy().max())
    return Relation(pairs, templates, whole == prompts.height and fits)


def crossed(relations: Mapping[str, Relation]) -> pl.DataFrame:
    """What the full run asks of each pair: pair_id, n_names, relation_id, n_templates."""
    return pl.concat(
        each.pairs.with_columns(
            relation_id=pl.lit(name), n_templates=pl.lit(len(each.templates), pl.Int64)
        )
        for name, each in relations.items()
    )


def chosen(
    relations: Mapping[str, Relation], budget: Callable[[int], int], *, seed: int
) -> dict[str, pl.DataFrame]:
    """The (pair_id, template_id, subject_index) of each relation that are within a budget.

    The budget says how many of all prompts it is. A larger one contains a smaller one.
    """
    squares = {}
    for name, relation in relations.items():
        names = relation.pairs["n_names"].to_numpy()
        squares[name] = square(names, len(relation.templates), seed=seed, relation_id=name)
    sizes = [s.n_names * s.templates.shape[1] for s in squares.values()]
    size, number = np.concatenate(sizes), np.repeat(np.arange(len(sizes)), list(map(len, sizes)))
    place = np.concatenate([s.place_in_relation for s in squares.values()])
    laps = allotted(budget(int(size.sum())), size, number, place, seed=seed)
    own = {name: laps[number == n] for n, name in enumerate(relations)}
    return {name: _asked(of, squares[name], own[name]) for name, of in relations.items()}


def whole_pairs(
    prompts: Mapping[str, pl.DataFrame], budget: Callable[[int], int], *, seed: int
) -> dict[str, pl.DataFrame]:
    """The pair_id of each relation within a budget, where pairs are asked as a whole.

    `prompts` has one row per pair of each relation: pair_id, n (its prompts). Relations are taken
    in proportion, their pairs in random order.
    """
    tables = list(prompts.values())
    size = np.concatenate([each["n"].to_numpy() for each in tables]).astype(np.int64)
    number = np.repeat(np.arange(len(tables)), [each.height for each in tables])
    orders = [
        generator(seed, "pairs", name).permutation(each.height) for name, each in prompts.items()
    ]
    order = in_proportion(number, np.concatenate([np.argsort(each) for each in orders]), seed)
    within = np.zeros(len(size), np.bool_)
    within[order] = np.cumsum(size[order]) <= budget(int(size.sum()))
    own = np.split(within, np.cumsum([each.height for each in tables])[:-1])
    return {
        name: each.select("pair_id").filter(pl.Series(mine))
        for (name, each), mine in zip(prompts.items(), own, strict=True)
    }


def _asked(of: Relation, order: Square, laps: IntArray) -> pl.DataFrame:
    """What facts are asked in their first laps."""
    fact = np.repeat(np.arange(len(laps)), laps)
    lap = np.arange(len(fact)) - np.repeat(np.cumsum(laps) - laps, laps)
    asked = order.at(fact, lap)
    return pl.DataFrame(
        {
            "pair_id": of.pairs["pair_id"].gather(fact),
            "template_id": of.templates.gather(asked.template),
            "subject_index": pl.Series(asked.name, dtype=pl.UInt16),
        }
    )
