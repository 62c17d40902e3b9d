"""Rebuild PRobELM: two snapshots of Wikidata → groups of a new triple and less plausible ones.

Source: PRobELM, section 3 and appendix B (Algorithm 1).
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import polars as pl
from rapidfuzz.distance import Levenshtein

from factsweep.operators import seeds
from factsweep.operators.construction.kamel import LABELS, add_reasons, count_left_out, unite_labels
from factsweep.operators.datasets.probelm import ROWS, Prompt, Slot
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import fit_schema, schema

TRIPLES = schema("subject_id text, relation_id text, object_id text")
SUBCLASS_OF = "P279"
_SLOTS: tuple[Slot, Slot] = ("subject", "object")
_TRIPLE = list(TRIPLES)
_GROUPS = schema("""
    subject_id text, relation_id text, object_id text, subject text, object text,
    other_subjects text[], other_objects text[], reason text, n_paraphrases int
""")


class Relation(NamedTuple):
    """A relation of the whitelist: its prompt, and when a query is too general to be asked.

    A query (the known entity and the relation) is general if it has more than `max_answers` right
    answers: "Who is a citizen of Spain?". Null: none is.
    """

    prompt: Prompt
    max_answers: int | None = None


class BuiltGroups(NamedTuple):
    """The rows of the groups (`operators.datasets.probelm.ROWS`), and the omissions.

    dropped: relation_id, unit (triple, alternative), reason, count.
    """

    rows: pl.DataFrame
    dropped: pl.DataFrame


def build(
    old_triples: pl.DataFrame,
    new_triples: pl.DataFrame,
    labels: pl.DataFrame,
    relations: Mapping[str, Relation],
    *,
    max_similarity: float,
    seed: int,
    max_groups: int | None = None,
    n_alternatives: int = 10,
    parents_by: Collection[str] = (SUBCLASS_OF,),
) -> BuiltGroups:
    """Make groups of the triples (TRIPLES) that are in `new_triples` and not in `old_triples`.

    `relations` is the whitelist, by id; `labels` (LABELS) names the entities. In this order are
    dropped: triples with an entity without a label; general queries; triples with fewer than
    `n_alternatives` alternatives in the asked slot; all but `max_groups`, drawn by seed. In the
    other slot there may be fewer alternatives.

    Alternatives are those of Algorithm 1 (`frequencies`) that are in neither snapshot, the most
    frequent first, then by id. One whose label is more similar than `max_similarity` to that of the
    plausible entity or of an earlier alternative is a paraphrase, and dropped.

    Raises:
        InputError: a missing column, or no triple is left.
    """
    old_triples = fit_schema(old_triples, TRIPLES, "before").unique()
    new_triples, labels = (
        fit_schema(new_triples, TRIPLES, "after").unique(),
        fit_schema(labels, LABELS, "labels"),
    )
    facts = pl.concat([old_triples, new_triples]).unique()
    names = (
        unite_labels(labels).select("entity_id", label=pl.col("labels").list.first()).drop_nulls()
    )
    new = _new_triples(old_triples, new_triples, facts, names, relations)
    usable = new.filter(pl.col("reason").is_null())
    alternatives = {
        slot: _alternatives(usable, old_triples, facts, names, slot, parents_by) for slot in _SLOTS
    }
    groups = _groups(usable, alternatives, relations, max_similarity, n_alternatives)
    # Of the groups with enough alternatives, `max_groups` are drawn.
    ids = [".".join(key) for key in groups.select(_TRIPLE).iter_rows()]
    random = pl.Series(seeds.keys(seed, "group", ids), dtype=pl.UInt64)
    is_short = pl.col("reason").is_not_null()
    rank = pl.when(~is_short).then(pl.lit(random)).rank("ordinal")
    is_drawn = pl.lit(value=True) if max_groups is None else rank <= max_groups
    groups = add_reasons(groups, too_few_alternatives=is_short, not_drawn=~is_drawn)
    groups_drawn = groups.filter(pl.col("reason").is_null())
    if groups_drawn.is_empty():
        raise InputError(
            f"no new triple of {', '.join(relations)} has {n_alternatives} alternatives; "
            "give larger snapshots, more relations or ask for fewer alternatives."
        )
    unused = pl.concat([table.select("relation_id", "reason") for table in (new, groups)])
    paraphrases = groups.group_by("relation_id").agg(
        unit=pl.lit("alternative"), reason=pl.lit("near_paraphrase"), count=pl.sum("n_paraphrases")
    )
    dropped = pl.concat(
        [count_left_out({"triple": unused}), paraphrases.filter(pl.col("count") > 0)]
    )
    return BuiltGroups(
        _rows(groups_drawn, relations), dropped.sort("relation_id", "unit", "reason")
    )


def frequencies(
    triples: pl.DataFrame,
    facts: pl.DataFrame,
    varied: Slot,
    parents_by: Collection[str] = (SUBCLASS_OF,),
) -> pl.DataFrame:
    """Algorithm 1: how often each entity stands in the slot `varied` under siblings of the other.

    For a triple (s, r, o) and `varied` = object, the siblings of s share a parent with it; each
    object that a sibling has under r counts once for that sibling. Columns: those of the triple,
    entity_id, frequency. `triples` and `facts` have the columns TRIPLES; parents are in `facts`.
    """
    fixed = "object" if varied == "subject" else "subject"
    parents = facts.filter(pl.col("relation_id").is_in(list(parents_by))).select(
        entity="subject_id", parent="object_id"
    )
    siblings = (
        triples.select(_TRIPLE)
        .join(parents, left_on=f"{fixed}_id", right_on="entity")
        .join(parents.rename({"entity": "sibling"}), on="parent")
        .filter(pl.col("sibling") != pl.col(f"{fixed}_id"))
        .drop("parent")
        .unique()
    )
    stated = facts.unique().select(
        "relation_id", sibling=f"{fixed}_id", entity_id=pl.col(f"{varied}_id")
    )
    counted = siblings.join(stated, on=["relation_id", "sibling"])
    return counted.group_by(*_TRIPLE, "entity_id").agg(frequency=pl.len().cast(pl.Int64))


def is_paraphrase(label: str, labels: Collection[str], max_similarity: float) -> bool:
    """Whether a label is more similar than that to one of the others, upper and lower case alike.

    Similarity is 1 − Levenshtein distance / length of the longer one. The paper names the distance
    and no limit.
    """
    label = label.lower()
    return any(
        Levenshtein.normalized_similarity(label, other.lower()) > max_similarity for other in labels
    )


def _new_triples(
    old_triples: pl.DataFrame,
    new_triples: pl.DataFrame,
    facts: pl.DataFrame,
    names: pl.DataFrame,
    relations: Mapping[str, Relation],
) -> pl.DataFrame:
    """The new triples of the whitelist with the labels `subject` and `object`, and `reason`."""
    limits = {relation_id: relation.max_answers for relation_id, relation in relations.items()}
    limit = pl.col("relation_id").replace_strict(limits, return_dtype=pl.Int64)
    rows = new_triples.join(old_triples, on=_TRIPLE, how="anti")
    rows = rows.filter(pl.col("relation_id").is_in(list(relations))).sort("relation_id", *_TRIPLE)
    for slot in _SLOTS:
        labels = names.rename({"entity_id": f"{slot}_id", "label": slot})
        rows = rows.join(labels, on=f"{slot}_id", how="left", maintain_order="left")
        keys = [f"{slot}_id", "relation_id"]
        answers = facts.group_by(keys).agg(pl.len().cast(pl.Int64).alias(f"answers_of_{slot}"))
        rows = rows.join(answers, on=keys, how="left", maintain_order="left")
    slots = {relation_id: relation.prompt.asked for relation_id, relation in relations.items()}
    asks_object = pl.col("relation_id").replace_strict(slots, return_dtype=pl.String) == "object"
    n_answers = pl.when(asks_object).then("answers_of_subject").otherwise("answers_of_object")
    nameless = pl.any_horizontal(pl.col(_SLOTS).is_null())
    rows = add_reasons(rows, entity_without_label=nameless, general_query=n_answers > limit)
    return rows.select(*_TRIPLE, *_SLOTS, "reason")


def _alternatives(
    triples: pl.DataFrame,
    old_triples: pl.DataFrame,
    facts: pl.DataFrame,
    names: pl.DataFrame,
    slot: Slot,
    parents_by: Collection[str],
) -> dict[tuple[str, ...], list[str]]:
    """The labels of each triple's alternatives in a slot, the most frequent entity first."""
    alternative = ["entity_id" if name == f"{slot}_id" else name for name in _TRIPLE]
    ordered = (
        frequencies(triples, old_triples, slot, parents_by)
        .join(facts, left_on=alternative, right_on=_TRIPLE, how="anti")
        .join(names, on="entity_id")
        .sort("frequency", "entity_id", descending=[True, False])
    )
    lists = ordered.group_by(_TRIPLE, maintain_order=True).agg("label")
    return {tuple(key): labels for *key, labels in lists.iter_rows()}


def _groups(
    triples: pl.DataFrame,
    labels: Mapping[Slot, Mapping[tuple[str, ...], list[str]]],
    relations: Mapping[str, Relation],
    max_similarity: float,
    n_alternatives: int,
) -> pl.DataFrame:
    """Each triple with its alternatives by slot, its `reason`, and how many paraphrases it lost."""
    rows: list[dict[str, Any]] = triples.with_columns(n_paraphrases=0).to_dicts()
    for row in rows:
        key = tuple(row[name] for name in _TRIPLE)
        for slot in _SLOTS:
            distinct = [row[slot]]
            for label in labels[slot].get(key, []):
                if len(distinct) > n_alternatives:
                    break
                if is_paraphrase(label, distinct, max_similarity):
                    row["n_paraphrases"] += 1
                else:
                    distinct.append(label)
            row[f"other_{slot}s"] = distinct[1:]
        alternatives = row[f"other_{relations[row['relation_id']].prompt.asked}s"]
        row["reason"] = "too_few_alternatives" if len(alternatives) < n_alternatives else None
    return pl.DataFrame(rows, schema=_GROUPS)


def _rows(groups: pl.DataFrame, relations: Mapping[str, Relation]) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for number, group in enumerate(groups.iter_rows(named=True)):
        triple: dict[str, Any] = {slot: group[slot] for slot in _SLOTS}
        triple |= {"id": number, "relation": relations[group["relation_id"]].prompt.relation}
        rows.append({**triple, "label": 1, "rank": 1})
        for slot in _SLOTS:
            for rank, label in enumerate(group[f"other_{slot}s"], start=2):
                rows.append({**triple, slot: label, "label": 0, "rank": rank})
    return pl.DataFrame(rows, schema=ROWS)
