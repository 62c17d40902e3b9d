"""Laps: the order in which a fact's prompts are asked, balanced over templates and names.

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

from typing import NamedTuple

import numpy as np

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
