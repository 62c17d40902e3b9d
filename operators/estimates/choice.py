"""The prompts of a budget: the laps in which facts are asked, balanced over templates and names.

A setting is a crossed design: each fact of a relation is asked in each of its T templates under
each of its N names. Facts of as many names are taken in random order in blocks of T, and a block
is a Latin square: in each lap its fact number j gets template number (j + shift) mod T of the
block's own random order. So in every lap a whole block asks each template once, and two facts of
different blocks meet other pairs of templates. The shifts of a block are T x N numbers in random
order, each N times. Whenever a fact meets a template again, it is asked under the next of its
names, the first being drawn at random: after T x N laps each (template, name) was asked once.

The prompts of a fact's first laps are thus a simple random sample of its prompts: two of them share
a template or a name as often as any two of its prompts do. A stricter order, all templates once
before any twice and names in turn, would balance a little better, but then the first two prompts
of a fact never share a name, and Consist is biased (by .003 on made-up answers).

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
    """The prompts of a lap: the number of the template, and of the name."""

    template: IntArray
    name: IntArray


class LatinSquare(NamedTuple):
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


def square(n_names: IntArray, n_templates: int, *, seed: int, relation_id: str) -> LatinSquare:
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
    return LatinSquare(
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
    """A random order with each shift n_names times, and how often each came before."""
    shifts = rng.permutation(n_templates * n_names) % n_templates
    by_shift = np.argsort(shifts, kind="stable")
    visits = np.empty(len(shifts), np.int64)
    visits[by_shift] = np.tile(np.arange(n_names), n_templates)
    return shifts, visits


# Facts are asked in two laps at once: the variance of a fact's answers, and Consist, need a pair.
LAPS_AT_ONCE = 2


def allot_prompts(
    budget: int, n_prompts: IntArray, relation: IntArray, place_in_relation: IntArray, *, seed: int
) -> IntArray:
    """The number of prompts to ask of each fact, so that at most `budget` are asked in all.

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
    order = order_in_proportion(relation, place_in_relation, seed)
    next_laps = np.minimum(LAPS_AT_ONCE, n_prompts - laps)[order]
    laps[order] += np.where(np.cumsum(next_laps) <= budget - laps.sum(), next_laps, 0)
    return laps


def order_in_proportion(relation: IntArray, place: IntArray, seed: int) -> IntArray:
    """The facts in an order whose every prefix has each relation's share."""
    sizes = np.bincount(relation)
    start = generator(seed, "budget").random(len(sizes))
    return np.argsort((place + start[relation]) / sizes[relation], kind="stable")


@dataclass(frozen=True)
class Relation:
    """The crossed design of a relation: pairs (pair_id, n_names) and template_ids, sorted.

    `is_crossed`: each pair has each template under each of its names.
    """

    pairs: pl.DataFrame
    templates: pl.Series
    is_crossed: bool


def relation(prompts: pl.DataFrame) -> Relation:
    """Read the facts, names and templates off a relation's prompts."""
    pairs = prompts.group_by("pair_id").agg(n_names=pl.col("subject_index").n_unique())
    pairs = pairs.with_columns(pl.col("n_names").cast(pl.Int64)).sort("pair_id")
    templates = prompts["template_id"].unique().sort()
    n_crossed = int(pairs["n_names"].sum()) * len(templates)
    last = prompts["subject_index"].max()
    fits = last is None or int(str(last)) < int(pairs["n_names"].to_numpy().max())
    return Relation(pairs, templates, n_crossed == prompts.height and fits)


def tabulate_designs(relations: Mapping[str, Relation]) -> pl.DataFrame:
    """The design of each pair in the full run: pair_id, n_names, relation_id, n_templates."""
    return pl.concat(
        design.pairs.with_columns(
            relation_id=pl.lit(name), n_templates=pl.lit(len(design.templates), pl.Int64)
        )
        for name, design in relations.items()
    )


def choose_prompts(
    relations: Mapping[str, Relation], budget: Callable[[int], int], *, seed: int
) -> dict[str, pl.DataFrame]:
    """The (pair_id, template_id, subject_index) of each relation within a budget.

    `budget` maps the number of all prompts to that of the sample. A larger one contains a smaller.
    """
    squares = {}
    for name, relation in relations.items():
        names = relation.pairs["n_names"].to_numpy()
        squares[name] = square(names, len(relation.templates), seed=seed, relation_id=name)
    sizes = [s.n_names * s.templates.shape[1] for s in squares.values()]
    size, number = np.concatenate(sizes), np.repeat(np.arange(len(sizes)), list(map(len, sizes)))
    place = np.concatenate([s.place_in_relation for s in squares.values()])
    laps = allot_prompts(budget(int(size.sum())), size, number, place, seed=seed)
    prompts = {}
    for n, (name, design) in enumerate(relations.items()):
        n_laps = laps[number == n]
        fact = np.repeat(np.arange(len(n_laps)), n_laps)
        lap = np.arange(len(fact)) - np.repeat(np.cumsum(n_laps) - n_laps, n_laps)
        places = squares[name].at(fact, lap)
        prompts[name] = pl.DataFrame(
            {
                "pair_id": design.pairs["pair_id"].gather(fact),
                "template_id": design.templates.gather(places.template),
                "subject_index": pl.Series(places.name, dtype=pl.UInt16),
            }
        )
    return prompts


def choose_pairs(
    prompts: Mapping[str, pl.DataFrame], budget: Callable[[int], int], *, seed: int
) -> dict[str, pl.DataFrame]:
    """The pair_id of each relation within a budget of whole pairs, relations in proportion.

    `prompts` has one row per pair of each relation: pair_id, n (its prompts).
    """
    tables = list(prompts.values())
    size = np.concatenate([table["n"].to_numpy() for table in tables]).astype(np.int64)
    number = np.repeat(np.arange(len(tables)), [table.height for table in tables])
    orders = [
        generator(seed, "pairs", name).permutation(table.height) for name, table in prompts.items()
    ]
    order = order_in_proportion(
        number, np.concatenate([np.argsort(order) for order in orders]), seed
    )
    within = np.zeros(len(size), np.bool_)
    within[order] = np.cumsum(size[order]) <= budget(int(size.sum()))
    by_relation = np.split(within, np.cumsum([table.height for table in tables])[:-1])
    return {
        name: table.select("pair_id").filter(pl.Series(is_within))
        for (name, table), is_within in zip(prompts.items(), by_relation, strict=True)
    }
