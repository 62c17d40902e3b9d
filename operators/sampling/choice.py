"""The prompts of a budget, from those of a setting."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from operators.sampling.budget import allotted, in_proportion
from operators.sampling.laps import Square, square
from operators.seeds import generator

_PLACE = ("pair_id", "template_id", "subject_index")


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


def chosen(
    relations: Mapping[str, Relation], *, share: float | None, n_prompts: int | None, seed: int
) -> dict[str, pl.DataFrame]:
    """The (pair_id, template_id, subject_index) of each relation that are within a budget.

    The budget is a share of all prompts, or a number of them. A larger one contains a smaller one.
    """
    squares = {
        name: square(
            each.pairs["n_names"].to_numpy(), len(each.templates), seed=seed, relation_id=name
        )
        for name, each in relations.items()
    }
    sizes = [s.n_names * s.templates.shape[1] for s in squares.values()]
    size, number = np.concatenate(sizes), np.repeat(np.arange(len(sizes)), list(map(len, sizes)))
    place = np.concatenate([s.place_in_relation for s in squares.values()])
    budget = n_prompts if share is None else round(share * int(size.sum()))
    laps = allotted(int(budget or 0), size, number, place, seed=seed)
    own = np.split(laps, np.cumsum(list(map(len, sizes)))[:-1])
    return {
        name: _asked(relations[name], squares[name], n)
        for name, n in zip(relations, own, strict=True)
    }


def whole_pairs(
    prompts: Mapping[str, pl.DataFrame], *, share: float | None, n_prompts: int | None, seed: int
) -> dict[str, pl.DataFrame]:
    """The pair_ids of each relation that are within a budget, where pairs are asked as a whole.

    `prompts` has one row per pair of each relation: pair_id, n (its prompts). Relations are taken
    in proportion, their pairs in random order. A larger budget contains a smaller one.
    """
    tables = list(prompts.values())
    size = np.concatenate([each["n"].to_numpy() for each in tables]).astype(np.int64)
    number = np.repeat(np.arange(len(tables)), [each.height for each in tables])
    orders = [
        generator(seed, "pairs", name).permutation(each.height) for name, each in prompts.items()
    ]
    order = in_proportion(number, np.concatenate([np.argsort(each) for each in orders]), seed)
    budget = n_prompts if share is None else round(share * int(size.sum()))
    taken = np.zeros(len(size), np.bool_)
    taken[order] = np.cumsum(size[order]) <= int(budget or 0)
    own = np.split(taken, np.cumsum([each.height for each in tables])[:-1])
    return {
        name: each.filter(pl.Series(mine)).select("pair_id")
        for (name, each), mine in zip(prompts.items(), own, strict=True)
    }


def _asked(of: Relation, order: Square, n: np.ndarray) -> pl.DataFrame:
    fact = np.repeat(np.arange(len(n)), n)
    asked = order.at(fact, np.arange(len(fact)) - np.repeat(np.cumsum(n) - n, n))
    return pl.DataFrame(
        {
            "pair_id": of.pairs["pair_id"].gather(fact),
            "template_id": of.templates.gather(asked.template),
            "subject_index": pl.Series(asked.name, dtype=pl.UInt16),
        }
    ).select(_PLACE)
