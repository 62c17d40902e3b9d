"""Demonstrations: which facts are shown, solved, before the question (BELIEF-ICL, section 3.1).

A *draw* is two integer arrays of shape (contexts, shots): the row of the pair in the pool, and the
row of the template it is shown in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from factsweep.operators import seeds
from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.setting import Setting, demonstration, eligible, filled, with_forms

Indices = NDArray[np.int64]


class Draw(NamedTuple):
    """For each context and shot, a row of the pool's pairs and a row of its templates."""

    pairs: Indices
    templates: Indices


class Span(NamedTuple):
    """The rows [start, start + length) of a table that is sorted by relation."""

    start: int
    length: int


@dataclass(frozen=True)
class Pool:
    """What demonstrations are drawn from, each table sorted by id, so that a draw can be repeated.

    pairs: pair_id, relation_id, name (the first), label (of the first object), and forms, where
    there are any.
    templates: template_id, relation_id, asked.
    """

    pairs: pl.DataFrame
    templates: pl.DataFrame
    pair_spans: dict[str, Span]
    template_spans: dict[str, Span]
    template_rows: dict[str, int]


def pool(facts: Facts, setting: Setting) -> Pool:
    """All facts as possible demonstrations of the setting."""
    pairs = facts.pairs.sort("relation_id", "pair_id").select(
        "pair_id",
        "relation_id",
        name=pl.col("subjects").list.first(),
        label=pl.col("objects").list.first().struct.field("labels").list.first(),
    )
    pairs, _ = with_forms(pairs, facts)
    templates = eligible(facts.templates, setting).sort("relation_id", "template_id")
    templates = templates.select("template_id", "relation_id", "asked")
    rows = {template: row for row, template in enumerate(templates["template_id"])}
    return Pool(pairs, templates, _spans(pairs), _spans(templates), rows)


def _spans(table: pl.DataFrame) -> dict[str, Span]:
    spans = table.with_row_index().group_by("relation_id").agg(pl.col("index").min(), pl.len())
    return {relation: Span(start, length) for relation, start, length in spans.iter_rows()}


def shared_draw(
    pool: Pool, setting: Setting, families: Sequence[str], relation_id: str, seed: int
) -> Draw:
    """The draw of families of prompts that share their demonstrations: (shots + 1 of each, shots).

    A family's row 0 shows the first `shots` pairs; row 1 + j, for the pair in place j, the spare
    there.

    Raises:
        InputError: the relation has too few pairs.
    """
    span, shown = _pairs_span(pool, setting, relation_id), setting.shots + 1
    random = [seeds.generator(seed, "demonstrations", setting.name, each) for each in families]
    drawn = [each.choice(span.length, shown, replace=False) for each in random]
    pairs = span.start + np.reshape(drawn, (len(families), shown))
    if setting.context == "template":
        own = [pool.template_rows[family] for family in families]
        templates = np.broadcast_to(np.array(own, dtype=np.int64)[:, None], pairs.shape)
    else:
        numbers = np.reshape([each.integers(2**63, size=shown) for each in random], pairs.shape)
        templates = _random_templates(pool, setting, pairs, numbers)
    places = np.tile(np.arange(setting.shots), (shown, 1))
    np.fill_diagonal(places[1:], setting.shots)
    return Draw(*(np.concatenate(each[:, places]) for each in (pairs, templates)))


def fresh_draw(
    pool: Pool, setting: Setting, relation_id: str, targets: Indices, own: Indices, rows: seeds.Keys
) -> Draw:
    """A draw for every prompt: (prompts, shots).

    `targets` and `own` are the prompts' rows in the pool's pairs and templates, `rows` random
    numbers.

    Raises:
        InputError: the relation has too few pairs.
    """
    span = _pairs_span(pool, setting, relation_id)
    drawn = seeds.distinct_indices(rows, count=setting.shots, among=span.length - 1)
    # The draw counts the other pairs alone: those from the target on are one row further down.
    chosen = span.start + drawn + (drawn >= (targets - span.start)[:, None])
    if setting.context == "template":
        return Draw(chosen, np.broadcast_to(own[:, None], chosen.shape))
    random = seeds.mix(seeds.mix(rows)[:, None] + np.arange(setting.shots, dtype=np.uint64))
    return Draw(chosen, _random_templates(pool, setting, chosen, (random >> 1).astype(np.int64)))


def _pairs_span(pool: Pool, setting: Setting, relation_id: str) -> Span:
    everything = Span(0, pool.pairs.height)
    span = everything if setting.context == "random" else pool.pair_spans[relation_id]
    if span.length <= setting.shots:
        raise InputError(
            f"{setting.name} needs {setting.shots + 1} pairs to draw from, and relation "
            f"{relation_id} has {span.length}; ask with fewer shots (prompt=zero-shot "
            "has none) or give more pairs."
        )
    return span


def _random_templates(pool: Pool, setting: Setting, pairs: Indices, random: Indices) -> Indices:
    """For each drawn pair, a template of its own relation."""
    relations = pool.pairs["relation_id"].unique().sort()
    spans = [pool.template_spans.get(relation, Span(0, 0)) for relation in relations]
    bare = [relation for relation, span in zip(relations, spans, strict=True) if not span.length]
    if bare:
        raise InputError(
            f"relation {bare[0]} has no template for prompt.style={setting.style}, "
            f"prompt.templates={setting.templates}; add one or leave the relation out."
        )
    # Both columns are sorted by relation, so a pair's relation is found by where its span starts.
    starts = np.array([pool.pair_spans[relation].start for relation in relations])
    relation = np.searchsorted(starts, pairs, side="right") - 1
    first, length = np.array(spans).T
    return np.asarray(first[relation] + random % length[relation], dtype=np.int64)


def contexts(
    pool: Pool, setting: Setting, ids: Sequence[str] | pl.Series, draw: Draw
) -> pl.DataFrame:
    """The table `contexts` of a draw: the instruction, then the demonstrations."""
    texts, shown = [setting.opening], []
    shots, known = pl.DataFrame({"context_id": ids}), pool.pairs.drop("relation_id")
    for place, (pairs, templates) in enumerate(zip(draw.pairs.T, draw.templates.T, strict=True)):
        columns = known[pairs].with_columns(asked=pool.templates["asked"].gather(templates))
        shots = shots.hstack(columns.select(pl.all().name.suffix(str(place))))
        forms = pl.col(f"forms{place}") if "forms" in known.columns else None
        sentence = filled(pl.col(f"asked{place}"), pl.col(f"name{place}"), forms)
        texts.append(demonstration(setting, sentence, pl.col(f"label{place}"), is_first=place == 0))
        shown.append(pl.col(f"pair_id{place}"))
    return shots.select(
        "context_id",
        setting=pl.lit(setting.name),
        text=pl.concat_str(texts),
        demonstrations=pl.concat_list(shown) if shown else pl.lit([], pl.List(pl.String)),
    )
