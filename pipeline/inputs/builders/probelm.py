"""A set like PRobELM from two snapshots of a knowledge base, in its authors' layout."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from factsweep.operators.construction import probelm
from factsweep.operators.construction.probelm import TRIPLES, Relation
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
from factsweep.pipeline.inputs.builders.folder import check_new, entry, left_out, publish
from factsweep.pipeline.inputs.builders.sources import labels, rows, table

_RELATIONS = pl.Schema(
    dict.fromkeys(("relation_id", "relation", "statement", "question", "asked"), pl.String())
)
_SLOTS = ("<subject>", "<object>")


def build_probelm(
    before: Path,
    after: Path,
    names: Path,
    whitelist: Path,
    out: Path,
    *,
    frame: str,
    max_similarity: float,
    seed: int,
    max_groups: int | None,
    n_alternatives: int,
    parents_by: Sequence[str],
) -> Iterator[str]:
    """Write a set like PRobELM into the new folder `out`; yields what was made and left out.

    `before` and `after` are tables of triples (TRIPLES), `whitelist` one of relations: relation_id,
    relation (its name), statement and question with <subject> and <object>, asked (subject or
    object) and, if wanted, max_answers. The folder has <frame>.json, prompts.csv and the catalog
    entry <name>.yaml.

    Raises:
        InputError: a file or value is missing or unfit, no group is left, or `out` exists.
    """
    check_new(out)
    _check(frame, max_similarity)
    relations = _relations(whitelist)
    built = probelm.build(
        table(before, TRIPLES),
        table(after, TRIPLES),
        labels(names),
        relations,
        max_similarity=max_similarity,
        seed=seed,
        max_groups=max_groups,
        n_alternatives=n_alternatives,
        parents_by=parents_by,
    )
    data = {
        f"{frame}.json": file_of_rows(built.rows),
        PROMPTS: file_of_prompts(each.prompt for each in relations.values()),
    }
    labelled = {relation_id: each.prompt.relation for relation_id, each in relations.items()}
    figures = counts(groups_from_files(data, labelled))
    text = entry(
        out,
        data,
        pattern="*.[jc]s*",
        reader="probelm",
        schema=ROWS,
        counts=figures,
        relations=labelled,
    )
    publish(out, {**data, f"{out.name}.yaml": text})
    yield (
        f"{out}: {figures['relations']} relations, {figures['groups']:,} groups, "
        f"{figures['candidates']:,} candidates"
    )
    yield from left_out(built.dropped)


def _check(frame: str, max_similarity: float) -> None:
    if not re.fullmatch(r"(0[1-9]|1[0-2])[0-9]{4}", frame):
        raise InputError(f"--frame {frame} is no month and year; write it as 112023.")
    if not 0 <= max_similarity <= 1:
        raise InputError(f"--max-similarity {max_similarity}; it must be from 0 to 1.")


def _relations(path: Path) -> Mapping[str, Relation]:
    found: dict[str, Relation] = {}
    limits = _limits(path)
    for number, (row, limit) in enumerate(
        zip(table(path, _RELATIONS).iter_rows(named=True), limits, strict=True)
    ):
        asked = row["asked"].strip("<>")
        problem = _problem(row, asked, found)
        if problem:
            raise InputError(f"{path}, row {number} (counted from 0): {problem}")
        prompt = Prompt(row["relation"], row["statement"], row["question"], asked)
        found[row["relation_id"]] = Relation(prompt, limit)
    if not found:
        raise InputError(f"{path} has no row; write one for each relation of the set.")
    return found


def _limits(path: Path) -> list[int | None]:
    """The most answers of each relation's queries; null: any number."""
    given = rows(path)
    if "max_answers" not in given.columns:
        return [None] * given.height
    numbers = given["max_answers"].cast(pl.Int64, strict=False)
    unfit = given["max_answers"].is_not_null() & numbers.is_null()
    if unfit.any():
        row = unfit.arg_max()
        raise InputError(
            f"{path}, row {row} (counted from 0): max_answers is no number; write one or nothing."
        )
    return numbers.to_list()


def _problem(row: Mapping[str, str], asked: str, found: Mapping[str, Relation]) -> str | None:
    if asked not in ("subject", "object"):
        return f"asked is {row['asked']!r}; write subject or object."
    if row["relation_id"] in found or row["relation"] in (
        r.prompt.relation for r in found.values()
    ):
        return f"{row['relation_id']} or its name {row['relation']!r} stands twice; leave one out."
    for name in ("relation", "statement", "question"):
        if ", " in row[name]:
            return f"{name} has a comma and a blank, which part the fields of {PROMPTS}; reword it."
    for name in ("statement", "question"):
        for slot in _SLOTS:
            if slot not in row[name]:
                return f"{name} has no {slot}; put it in."
    return None
