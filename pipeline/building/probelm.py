"""A set like PRobELM from two snapshots of a knowledge base, in its authors' layout."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from factsweep.operators.construction import probelm
from factsweep.operators.construction.probelm import TRIPLES, Relation
from factsweep.operators.construction.set_card import Origin
from factsweep.operators.datasets.probelm import (
    PROMPTS,
    ROWS,
    Prompt,
    counts,
    file_of_prompts,
    file_of_rows,
    groups_from_files,
)
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import refuse, schema
from factsweep.pipeline.building.set_folder import (
    check_new,
    describe_omissions,
    describe_set,
    entry,
    publish,
)
from factsweep.pipeline.inputs import files
from factsweep.pipeline.inputs.files import read_rows, read_table

_RELATIONS = schema("relation_id text, relation text, statement text, question text, asked text")
_SLOTS = ("<subject>", "<object>")


def build_probelm(
    before: Path,
    after: Path,
    labels: Path,
    relations: Path,
    out: Path,
    *,
    frame: str,
    max_similarity: float,
    seed: int,
    max_groups: int | None,
    alternatives: int,
    parents: Sequence[str],
    origin: Origin | None = None,
) -> Iterator[str]:
    """Write a set like PRobELM into the new folder `out`; yields lines on it and its omissions.

    `before` and `after` are tables of triples (TRIPLES), `relations` one of relations: relation_id,
    relation (its name), statement and question with <subject> and <object>, asked (subject or
    object) and, if wanted, max_answers. The folder has <frame>.json, prompts.csv and the catalog
    entry <name>.yaml; with an `origin` its card, and croissant.json.

    Raises:
        InputError: a file or value is missing or unfit, no group is left, or `out` exists.
    """
    check_new(out)
    if not re.fullmatch(r"(0[1-9]|1[0-2])[0-9]{4}", frame):
        raise InputError(f"--frame {frame} is no month and year; write it as 112023.")
    if not 0 <= max_similarity <= 1:
        raise InputError(f"--max-similarity {max_similarity}; it must be from 0 to 1.")
    whitelist = _read_relations(relations)
    built = probelm.build(
        read_table(before, TRIPLES),
        read_table(after, TRIPLES),
        files.read_labels(labels),
        whitelist,
        max_similarity=max_similarity,
        seed=seed,
        max_groups=max_groups,
        n_alternatives=alternatives,
        parents_by=parents,
    )
    file, prompts = f"{frame}.json", [relation.prompt for relation in whitelist.values()]
    data = {file: file_of_rows(built.rows), PROMPTS: file_of_prompts(prompts)}
    names = {relation_id: relation.prompt.relation for relation_id, relation in whitelist.items()}
    figures = counts(groups_from_files(data, names))
    fields: dict[str, Any] = {
        "schema": ROWS,
        "counts": figures,
        "relations": names,
        "origin": origin,
    }
    text = entry(out, data, pattern=f"{file}|{PROMPTS}", reader="probelm", **fields)
    sizes: dict[str, Any] = {"counts": figures, "n_rows": int(figures["candidates"])}
    card = describe_set(out.name, data, origin, **sizes, splits={"default": {"test": file}})
    publish(out, {**data, **card, f"{out.name}.yaml": text})
    yield (
        f"{out}: {figures['relations']} relations, {figures['groups']:,} groups, "
        f"{figures['candidates']:,} candidates"
    )
    yield from describe_omissions(built.dropped)


def _read_relations(path: Path) -> Mapping[str, Relation]:
    source_rows = read_rows(path)
    limits = source_rows["max_answers"] if "max_answers" in source_rows.columns else pl.lit(None)
    relations = read_table(path, _RELATIONS).with_row_index("row")
    relations = relations.with_columns(pl.col("asked").str.strip_chars("<>"), given=limits)
    is_list = relations.schema["given"].is_nested()  # as JSONL may have it
    number = pl.lit(None) if is_list else pl.col("given")
    relations = relations.with_columns(limit=number.cast(pl.Int64, strict=False))
    refuse(relations, dict(_list_problems()), relations.columns, str(path))
    if relations.is_empty():
        raise InputError(f"{path} has no row; write one for each relation of the set.")
    return {
        row["relation_id"]: Relation(Prompt(*(row[name] for name in Prompt._fields)), row["limit"])
        for row in relations.iter_rows(named=True)
    }


def _list_problems() -> Iterator[tuple[str, pl.Expr]]:
    row = ", row {row} (counted from 0): "
    is_number = pl.col("given").is_null() | pl.col("limit").is_not_null()
    yield f"{row}max_answers is no number; write one or nothing.", ~is_number
    is_slot = pl.col("asked").is_in(["subject", "object"])
    yield f"{row}asked is {{asked!r}}; write subject or object.", ~is_slot
    is_new = pl.col("relation_id").is_first_distinct() & pl.col("relation").is_first_distinct()
    yield f"{row}{{relation_id}} or its name {{relation!r}} stands twice; leave one out.", ~is_new
    for name in ("relation", "statement", "question"):
        problem = f"{name} has a comma and a blank, which part the fields of {PROMPTS}; reword it."
        yield f"{row}{problem}", pl.col(name).str.contains(", ", literal=True)
    for name, slot in product(("statement", "question"), _SLOTS):
        lacks = ~pl.col(name).str.contains(slot, literal=True)
        yield f"{row}{name} has no {slot}; put it in.", lacks
