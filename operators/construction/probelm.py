"""Rebuild PRobELM: two snapshots of Wikidata → groups of a new triple and less plausible ones.

Source: PRobELM, section 3 and appendix B (Algorithm 1).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import polars as pl
from rapidfuzz.distance import Levenshtein

from factsweep.operators import seeds
from factsweep.operators.construction.kamel import LABELS, left_out, united, with_reasons
from factsweep.operators.datasets.probelm import ROWS, Prompt, Slot
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import fitted, schema

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


class Built(NamedTuple):
    """The rows of the groups (`operators.datasets.probelm.ROWS`), and what was left out and why.

    dropped: relation_id, unit (triple, alternative), reason, count.
    """

    rows: pl.DataFrame
    dropped: pl.DataFrame


def build(
    before: pl.DataFrame,
    after: pl.DataFrame,
    labels: pl.DataFrame,
    relations: Mapping[str, Relation],
    *,
    max_similarity: float,
    seed: int,
    max_groups: int | None = None,
    n_alternatives: int = 10,
    parents_by: Collection[str] = (SUBCLASS_OF,),
) -> Built:
    """Make groups of the triples (TRIPLES) that are in `after` and not in `before`.

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
    before = fitted(before, TRIPLES, "before").unique()
    after, labels = fitted(after, TRIPLES, "after").unique(), fitted(labels, LABELS, "labels")
    known = pl.concat([before, after]).unique()
    names = united(labels).select("entity_id", label=pl.col("labels").list.first()).drop_nulls()
    new = _new_triples(before, after, known, names, relations)
    usable = new.filter(pl.col("reason").is_null())
    found = {slot: _alternatives(usable, before, known, names, slot, parents_by) for slot in _SLOTS}
    groups = _groups(usable, found, relations, max_similarity, n_alternatives)
    kept, reasons = _drawn(groups, max_groups, seed)
    if kept.is_empty():
        raise InputError(
            f"no new triple of {', '.join(relations)} has {n_alternatives} alternatives; "
            "give larger snapshots, more relations or ask for fewer alternatives."
        )
    unused = pl.concat([each.select("relation_id", "reason") for each in (new, reasons)])
    passed_over = groups.group_by("relation_id").agg(
        unit=pl.lit("alternative"), reason=pl.lit("near_paraphrase"), count=pl.sum("n_paraphrases")
    )
    dropped = pl.concat([left_out({"triple": unused}), passed_over.filter(pl.col("count") > 0)])
    return Built(_rows(kept, relations), dropped.sort("relation_id", "unit", "reason"))


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


def is_paraphrase(label: str, others: Collection[str], max_similarity: float) -> bool:
    """Whether a label is more similar than that to one of the others, upper and lower case alike.

    Similarity is 1 − Levenshtein distance / length of the longer one. The paper names the distance
    and no limit.
    """
    alike = (Levenshtein.normalized_similarity(label.lower(), each.lower()) for each in others)
    return any(each > max_similarity for each in alike)


def _new_triples(
    before: pl.DataFrame,
    after: pl.DataFrame,
    known: pl.DataFrame,
    names: pl.DataFrame,
    relations: Mapping[str, Relation],
) -> pl.DataFrame:
    """The new triples of the whitelist with the labels `subject` and `object`, and `reason`."""
    limits = {relation_id: each.max_answers for relation_id, each in relations.items()}
    limit = pl.col("relation_id").replace_strict(limits, return_dtype=pl.Int64)
    rows = after.join(before, on=_TRIPLE, how="anti")
    rows = rows.filter(pl.col("relation_id").is_in(list(relations))).sort("relation_id", *_TRIPLE)
    for slot in _SLOTS:
        named = names.rename({"entity_id": f"{slot}_id", "label": slot})
        rows = rows.join(named, on=f"{slot}_id", how="left", maintain_order="left")
        keys = [f"{slot}_id", "relation_id"]
        answers = known.group_by(keys).agg(pl.len().cast(pl.Int64).alias(f"answers_of_{slot}"))
        rows = rows.join(answers, on=keys, how="left", maintain_order="left")
    slots = {relation_id: each.prompt.asked for relation_id, each in relations.items()}
    asks_object = pl.col("relation_id").replace_strict(slots, return_dtype=pl.String) == "object"
    n_answers = pl.when(asks_object).then("answers_of_subject").otherwise("answers_of_object")
    nameless = pl.any_horizontal(pl.col(_SLOTS).is_null())
    rows = with_reasons(rows, entity_without_label=nameless, general_query=n_answers > limit)
    return rows.select(*_TRIPLE, *_SLOTS, "reason")


def _alternatives(
    triples: pl.DataFrame,
    before: pl.DataFrame,
    known: pl.DataFrame,
    names: pl.DataFrame,
    slot: Slot,
    parents_by: Collection[str],
) -> dict[tuple[str, ...], list[str]]:
    """The labels of each triple's alternatives in a slot, the most frequent entity first."""
    asked = ["entity_id" if name == f"{slot}_id" else name for name in _TRIPLE]
    ordered = (
        frequencies(triples, before, slot, parents_by)
        .join(known, left_on=asked, right_on=_TRIPLE, how="anti")
        .join(names, on="entity_id")
        .sort("frequency", "entity_id", descending=[True, False])
    )
    lists = ordered.group_by(_TRIPLE, maintain_order=True).agg("label")
    return {tuple(key): found for *key, found in lists.iter_rows()}


def _groups(
    triples: pl.DataFrame,
    found: Mapping[Slot, Mapping[tuple[str, ...], list[str]]],
    relations: Mapping[str, Relation],
    max_similarity: float,
    n_alternatives: int,
) -> pl.DataFrame:
    """Each triple with its alternatives by slot, its `reason`, and how many paraphrases it lost."""
    rows: list[dict[str, Any]] = triples.with_columns(n_paraphrases=0).to_dicts()
    for row in rows:
        key = tuple(row[name] for name in _TRIPLE)
        for slot in _SLOTS:
            others, n = _taken(row[slot], found[slot].get(key, []), max_similarity, n_alternatives)
            row[f"other_{slot}s"] = others
            row["n_paraphrases"] += n
        asked = row[f"other_{relations[row['relation_id']].prompt.asked}s"]
        row["reason"] = "too_few_alternatives" if len(asked) < n_alternatives else None
    return pl.DataFrame(rows, schema=_GROUPS)


def _taken(
    label: str, labels: Iterable[str], max_similarity: float, n: int
) -> tuple[list[str], int]:
    kept, n_paraphrases = [label], 0
    for other in labels:
        if len(kept) > n:
            break
        if is_paraphrase(other, kept, max_similarity):
            n_paraphrases += 1
        else:
            kept.append(other)
    return kept[1:], n_paraphrases


def _drawn(
    groups: pl.DataFrame, max_groups: int | None, seed: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The groups that are kept, and all groups with the reason why they are not."""
    whole = groups.filter(pl.col("reason").is_null())
    ids = (".".join(key) for key in whole.select(_TRIPLE).iter_rows())
    random = pl.Series(seeds.keys(seed, "group", ids), dtype=pl.UInt64)
    taken = pl.lit(True) if max_groups is None else pl.lit(random.rank("ordinal") <= max_groups)
    marked = with_reasons(whole, not_drawn=~taken)
    kept = marked.filter(pl.col("reason").is_null())
    return kept, pl.concat([groups.drop_nulls("reason"), marked])


def _rows(groups: pl.DataFrame, relations: Mapping[str, Relation]) -> pl.DataFrame:
    """The groups as the authors' rows: the plausible one, other subjects, other objects."""
    rows: list[dict[str, Any]] = []
    for number, group in enumerate(groups.iter_rows(named=True)):
        triple: dict[str, Any] = {each: group[each] for each in _SLOTS}
        triple |= {"id": number, "relation": relations[group["relation_id"]].prompt.relation}
        rows.append({**triple, "label": 1, "rank": 1})
        for slot in _SLOTS:
            for rank, label in enumerate(group[f"other_{slot}s"], start=2):
                rows.append({**triple, slot: label, "label": 0, "rank": rank})
    return pl.DataFrame(rows, schema=ROWS)
