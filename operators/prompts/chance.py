"""Clozes that chance is measured by: of another subject, or of another relation (for KaRR).

    The capital of France is      the fact's own cloze
    The capital of Spain is       another subject, its relation
    France lies in                its subject, another relation

How likely the right answer is behind these says how likely it is whatever is asked. Other subjects
are those of the relation's other facts. Of other relations, those come first that the answer is an
object of: what the answer can never be an object of says little.

Where people wrote sentences in place of templates, a sentence of another relation becomes an
opening: its subject's label, where it stands in the sentence, makes room for the fact's own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from factsweep.operators import seeds
from factsweep.operators.datasets.facts import Facts
from factsweep.operators.prompts.clozes import SENTENCE, clozes, openings

_SLOT = "[X]"


class Chance(NamedTuple):
    """The clozes of other subjects, and those of other relations."""

    subjects: Sequence[str]
    relations: Sequence[str]


def chances(facts: Facts, relation_id: str, n: int, *, seed: int) -> Mapping[str, Chance]:
    """At most n clozes of either kind for each pair of a relation, by pair_id.

    Each is of a subject or relation of its own. `facts` are all that are asked, with one object a
    pair; where people wrote sentences, they need a knowledge base, which knows subjects' labels.
    """
    mine, texts = facts.of(relation_id), _openings(facts)
    asked, names = _by_subject(mine), _names(facts, mine)
    circle = sorted(asked, key=lambda subject: (seeds.key(seed, "chance", subject), subject))
    places = {subject: place for place, subject in enumerate(circle)}
    relations_of = _relations_of(facts.pairs)
    found = {}
    pairs = mine.pairs.select("pair_id", "subject_id", "objects")
    for pair_id, subject_id, objects in pairs.iter_rows():
        place, name = places[subject_id], names.get(subject_id)
        others = (*circle[place + 1 : place + 1 + n], *circle[:place])[:n]
        known = relations_of[objects[0]["object_id"]]
        order = sorted(
            texts.keys() - {relation_id},
            key=lambda each: (each not in known, seeds.key(seed, "chance", pair_id, each)),
        )
        of_relations = [] if name is None else _drawn(texts, order[:n], seed, pair_id)
        named = [each.replace(_SLOT, str(name)) for each in of_relations]
        found[pair_id] = Chance(_drawn(asked, others, seed, pair_id), named)
    return found


def _drawn(
    texts: Mapping[str, Sequence[str]], names: Iterable[str], seed: int, pair_id: str
) -> list[str]:
    """One text of each name."""
    keys = {each: seeds.key(seed, "chance cloze", pair_id, each) for each in names}
    return [texts[each][key % len(texts[each])] for each, key in keys.items()]


def _by_subject(mine: Facts) -> dict[str, list[str]]:
    rows = clozes(mine).join(mine.pairs.select("pair_id", "subject_id"), on="pair_id")
    by_subject = rows.sort("prompt_id").group_by("subject_id", maintain_order=True)
    return dict(by_subject.agg(pl.col("query").unique(maintain_order=True)).iter_rows())


def _relations_of(pairs: pl.DataFrame) -> Mapping[str, Sequence[str]]:
    rows = pairs.select("relation_id", "objects").explode("objects").unnest("objects")
    return dict(rows.group_by("object_id").agg(pl.col("relation_id").unique()).iter_rows())


def _names(facts: Facts, mine: Facts) -> Mapping[str, str]:
    """What each subject of a relation is called."""
    if _is_written(mine):
        return _labels(facts)
    return dict(mine.pairs.select("subject_id", pl.col("subjects").list.first()).iter_rows())


def _openings(facts: Facts) -> Mapping[str, Sequence[str]]:
    """What a cloze of each relation begins with, [X] for its subject; relations without are out."""
    rows = openings(facts.templates).filter(pl.col("cut") != SENTENCE).sort("template_id")
    texts = [*rows.select("relation_id", "cut").iter_rows()]
    if _is_written(facts):
        texts += _of_sentences(facts.pairs, _labels(facts))
    found: dict[str, list[str]] = {}
    for relation_id, text in texts:
        found.setdefault(relation_id, []).append(text)
    return found


def _of_sentences(pairs: pl.DataFrame, labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The sentences that name their subject, with room for another."""
    rows = pairs.sort("pair_id").select("relation_id", "subject_id", "subjects")
    for relation_id, subject_id, sentence in rows.explode("subjects").iter_rows():
        label = labels.get(subject_id, _SLOT)
        if label in sentence:
            yield relation_id, sentence.replace(label, _SLOT, 1).rstrip()


def _is_written(facts: Facts) -> bool:
    """Whether some cloze is a sentence that somebody wrote for its fact."""
    return bool((openings(facts.templates)["cut"] == SENTENCE).any())


def _labels(facts: Facts) -> Mapping[str, str]:
    """The first label of each subject that the knowledge base knows."""
    assert facts.knowledge_base is not None, "sentences need a knowledge base"
    subjects = facts.pairs.select(entity_id="subject_id").unique()
    known = facts.knowledge_base.entities.join(subjects, on="entity_id", how="semi")
    return dict(known.select("entity_id", pl.col("labels").list.first()).iter_rows())
