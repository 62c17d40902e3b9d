"""X-FACTR's facts and aliases as MyriadLAMA rows, under the templates of myriadlama-mini."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.myriadlama import rows_from_facts


def rows(xfactr: Path, templates: pl.DataFrame, names_per_subject: int = 4) -> pl.DataFrame:
    """One row per pair and template; a relation that the mini set lacks takes P17's templates."""
    aliases = dict(_aliases(xfactr / "aliases.en.tsv"))
    found = [f for p in sorted((xfactr / "facts").glob("P*.jsonl")) for f in _facts(p)]
    table = pl.DataFrame(found).with_columns(
        relation_id="predicate_id", subject_id="sub_uri", object_id="obj_uri"
    )
    names = {q: [n for n in found if n] for q, found in aliases.items()}
    pairs = (
        table.group_by("relation_id", "subject_id", maintain_order=True)
        .agg(pl.col("sub_label").first(), pl.col("object_id"), pl.col("obj_label"))
        .to_dicts()
    )
    records = [_pair(pair, names, names_per_subject) for pair in pairs]
    relations = table.select(pl.col("relation_id").unique(maintain_order=True))
    everywhere = pl.concat([_templates(templates, r) for r in relations["relation_id"]])
    facts = Facts(relations.with_columns(label="relation_id"), everywhere, pl.DataFrame(records))
    return rows_from_facts(facts)


def _facts(path: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, path.read_text().splitlines())


def _aliases(path: Path) -> Iterator[tuple[str, list[str]]]:
    for line in path.read_text().splitlines():
        entity, *names = line.split("\t")
        yield entity, names


def _pair(pair: dict[str, Any], names: dict[str, list[str]], limit: int) -> dict[str, Any]:
    subjects = list(dict.fromkeys([pair["sub_label"], *names.get(pair["subject_id"], [])]))
    objects = dict(zip(pair["object_id"], pair["obj_label"], strict=True))
    return {
        "pair_id": f"{pair['relation_id']}.{pair['subject_id']}",
        "relation_id": pair["relation_id"],
        "subject_id": pair["subject_id"],
        "subjects": subjects[:limit],
        "objects": [
            {"object_id": q, "labels": list(dict.fromkeys([label, *names.get(q, [])]))}
            for q, label in objects.items()
        ],
    }


def _templates(templates: pl.DataFrame, relation_id: str) -> pl.DataFrame:
    of_relation = templates.filter(relation_id=relation_id)
    of_relation = templates.filter(relation_id="P17") if of_relation.is_empty() else of_relation
    return of_relation.with_columns(relation_id=pl.lit(relation_id))
