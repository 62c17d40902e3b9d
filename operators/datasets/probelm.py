"""PRobELM: its authors' files (docs/data.md) → the canonical tables.

A group of rows becomes a pair: `subjects` is the known entity, `objects` the plausible one, and
`candidates` are a table of their own: the rows that differ from the plausible triple in the asked
slot alone. In a template, [X] is the known entity and [Y] the asked one: "[Y] is the editor of
[X].". An `object_id` is the rank in the file, `split` the time frame by its first month: 2023-11.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

import polars as pl

from factsweep.operators.datasets.columns import check_fields
from factsweep.operators.datasets.facts import (
    Facts,
    Relations,
    check_facts,
    number_templates,
    relation_table,
)
from factsweep.operators.datasets.kamel import lines
from factsweep.operators.datasets.table_files import check, parse_json
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import columns, refuse, schema

PROMPTS = "prompts.csv"
Slot = Literal["subject", "object"]
_SLOTS: Mapping[str, Slot] = {"<subject>": "subject", "<object>": "object"}

# A row of a file, and the group that it stands in.
ROWS = schema("id int, subject text, relation text, object text, label int, rank int")
# As it is read: where its group is, the time frame, and its place in the group.
_READ = schema("where text, frame text, place int") | ROWS
CANDIDATES = columns("candidates")
DROPPED = schema("pair_id text, reason text, count int")
COPY, DUPLICATE = "copy_of_positive", "duplicate_alternative"


class Prompt(NamedTuple):
    """A line of prompts.csv: templates with <subject> and <object>, and the slot that is asked."""

    relation: str
    statement: str
    question: str
    asked: Slot


class Groups(NamedTuple):
    """The facts, and the candidates left out of them by pair and reason (columns: DROPPED)."""

    facts: Facts
    dropped: pl.DataFrame


def groups_from_files(files: Mapping[str, str], relation_labels: Relations = None) -> Groups:
    """The canonical tables of the authors' files: their path in the set → their content.

    The files name relations by label. `relation_labels` gives the id of each label that may be
    there; without it every relation is taken and its id is its label. Alternatives equal to the
    plausible entity are dropped (reason COPY), and so are repeated ones (DUPLICATE).

    Raises:
        InputError: an unfit file, line or row, or a flaw that `check_facts` refuses.
    """
    by_name = {PurePosixPath(path).name: path for path in files}
    if PROMPTS not in by_name:
        raise InputError(f"{PROMPTS} is missing; put it next to the files of the time frames.")
    prompts = _prompts(by_name[PROMPTS], files[by_name[PROMPTS]])
    labels = {name: name for name in prompts} if relation_labels is None else relation_labels
    ids = {label: relation_id for relation_id, label in labels.items()}
    paths = (path for path in sorted(files) if path.endswith(".json"))
    read = [row for path in paths for row in _rows(PurePosixPath(path), files[path])]
    rows = pl.DataFrame(read, schema=_READ, orient="row")
    _check_rows(rows, prompts, ids)
    candidates, without_copies, distinct = _select_candidates(rows, prompts, ids)
    dropped = []
    for rows_before, rows_after, reason in (
        (candidates, without_copies, COPY),
        (without_copies, distinct, DUPLICATE),
    ):
        lost = rows_before.join(
            rows_after, on=["where", "place"], how="anti", maintain_order="left"
        )
        counts = lost.group_by("pair_id", maintain_order=True).agg(
            reason=pl.lit(reason), count=pl.len().cast(pl.Int64)
        )
        dropped.append(counts.select(DROPPED.names()))
    return Groups(_facts(distinct, prompts, ids), pl.concat(dropped))


def facts_from_files(files: Mapping[str, str], relation_labels: Relations = None) -> Facts:
    """The facts of `groups_from_files`."""
    return groups_from_files(files, relation_labels).facts


def candidates(facts: Facts) -> pl.DataFrame:
    """The candidates of each pair, in the order of the file (columns: CANDIDATES).

    `rank` is that of the file: 1 is the plausible one.

    Raises:
        InputError: the facts were read by a version that kept the candidates among the pairs.
    """
    if "candidates" not in facts.extra_tables:
        raise InputError("these facts are of an earlier version and have no candidates; run again.")
    return facts.extra_tables["candidates"]


def counts(groups: Groups) -> dict[str, int]:
    """The set's size: relations, groups, candidates that are ranked, and those left out by reason.

    `full_groups` are those of ten alternatives.
    """
    sizes = candidates(groups.facts).group_by("pair_id").len()["len"]
    reasons = dict(groups.dropped.group_by("reason").agg(pl.sum("count")).iter_rows())
    return {
        "relations": groups.facts.relations.height,
        "groups": groups.facts.pairs.height,
        "full_groups": int((sizes == 11).sum()),
        "candidates": int(sizes.sum()),
        "copies_of_positive": int(reasons.get(COPY, 0)),
        "duplicate_alternatives": int(reasons.get(DUPLICATE, 0)),
    }


def file_of_rows(rows: pl.DataFrame) -> str:
    """The authors' file of a time frame (JSON) from its rows (columns: ROWS), in their order."""
    rows = rows.select("subject", "relation", "object", "id", "label", "rank")
    groups = rows.partition_by("id", maintain_order=True)
    return json.dumps([group.to_dicts() for group in groups], ensure_ascii=False) + "\n"


def file_of_prompts(prompts: Iterable[Prompt]) -> str:
    """The authors' prompts.csv."""
    return "".join(f"{', '.join(prompt[:3])}, <{prompt.asked}>\n" for prompt in prompts)


def _prompts(path: str, content: str) -> dict[str, Prompt]:
    """The prompt of each relation; there is no header, and no field holds a comma and a blank."""
    prompts: dict[str, Prompt] = {}
    for place, line in lines(path, content):
        fields = [field.strip() for field in line.split(", ")]
        if len(fields) != len(Prompt._fields):
            raise InputError(
                f"{place}: {len(fields)} fields, expected {', '.join(Prompt._fields)}; "
                "write them with a comma and a blank between."
            )
        relation, statement, question, slot_text = fields
        if relation in prompts:
            raise InputError(f"{place}: {relation} has a line already; leave one out.")
        if slot_text not in _SLOTS:
            raise InputError(f"{place}: asked slot {slot_text!r}; write <subject> or <object>.")
        for text, slot in product((statement, question), _SLOTS):
            if slot not in text:
                raise InputError(f"{place}: {text!r} has no {slot}; put it in.")
        prompts[relation] = Prompt(relation, statement, question, _SLOTS[slot_text])
    return prompts


def _rows(path: PurePosixPath, content: str) -> Iterator[tuple[object, ...]]:
    """The rows of a time frame (_READ)."""
    month = re.fullmatch(r"(0[1-9]|1[0-2])([0-9]{4})", path.stem)
    if month is None:
        raise InputError(
            f"{path}: the name is no time frame; call it by its first month, as 112023.json."
        )
    groups = parse_json(content, str(path), "correct the file")
    if not isinstance(groups, list):
        raise InputError(f"{path}: no list of groups; give a list of lists of rows.")
    for number, rows in enumerate(groups):
        location = f"{path}, group {number} (counted from 0)"
        check(location, isinstance(rows, list) and rows, "no list of rows", rows, noun="it")
        for place, row in enumerate(rows):
            of_row = f"{location}, row {place}"
            check(of_row, isinstance(row, dict), "no JSON object", row, noun="it")
            check_fields(of_row, row, ROWS.names(), "PRobELM's files")
            for name, dtype in ROWS.items():
                kind, noun = (int, "number") if dtype == pl.Int64 else (str, "text")
                # Not isinstance: a truth value is an int, too.
                fits = type(row[name]) is kind and str(row[name]).strip()
                check(of_row, fits, f"{name} must be a {noun}", row, noun="it")
            yield location, f"{month[2]}-{month[1]}", place, *(row[name] for name in ROWS)


def _check_rows(rows: pl.DataFrame, prompts: Mapping[str, Prompt], ids: Mapping[str, str]) -> None:
    first, relation = pl.col("place") == 0, pl.col("relation")
    problems = {
        "relation or id differs from the group's first row": ~_as_first("relation", "id"),
        "the first row must have label 1 and rank 1": first
        & ((pl.col("label") != 1) | (pl.col("rank") != 1)),
        "label must be 0": ~first & (pl.col("label") != 0),
        "rank must be 2 or more": ~first & (pl.col("rank") < 2),
        "its id stands in an earlier group": first
        & ~pl.struct("frame", "id", "place").is_first_distinct(),
        f"{PROMPTS} has no line for its relation {{relation}}": ~relation.is_in(list(prompts)),
        "the catalog entry does not name its relation {relation}": ~relation.is_in(list(ids)),
    }
    row = "{where}, row {place}: %s; correct or drop it."
    refuse(rows, {row % problem: unfit for problem, unfit in problems.items()}, rows.columns)


def _as_first(*columns: str) -> pl.Expr:
    """Whether a row has the values of the first row of its group in these columns."""
    return pl.all_horizontal(pl.col(*columns) == pl.col(*columns).first().over("where"))


def _select_candidates(
    rows: pl.DataFrame, prompts: Mapping[str, Prompt], ids: Mapping[str, str]
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The rows that differ in the asked slot alone; without copies of the first; each entity once.

    Columns: those read, relation_id, slot, pair_id, known (an entity), name (of the asked one).
    """
    slots = [(name, ids[name], prompt.asked) for name, prompt in prompts.items() if name in ids]
    table = pl.DataFrame(slots, ["relation", "relation_id", "slot"], orient="row")
    rows = rows.join(table.cast(pl.String), on="relation", maintain_order="left")
    asks_subject = pl.col("slot") == "subject"
    candidates = rows.with_columns(
        pair_id=pl.format("{}.{}.{}", "relation_id", "frame", "id"),
        known=pl.when(asks_subject).then("object").otherwise("subject"),
        name=pl.when(asks_subject).then("subject").otherwise("object"),
    ).filter(_as_first("known"))
    without_copies = candidates.filter((pl.col("place") == 0) | ~_as_first("name"))
    distinct = without_copies.unique(["where", "name"], keep="first", maintain_order=True)
    no_alternative = "{where}: no alternative differs in the {slot} alone; correct or drop it."
    twice = "{where}: two alternatives of one rank ({rank}); correct or drop one."
    problems = {
        no_alternative: pl.len().over("where") == 1,
        twice: ~pl.struct("where", "rank").is_first_distinct(),
    }
    refuse(distinct, problems, ["where", "slot", "rank"])
    return candidates, without_copies, distinct


def _facts(rows: pl.DataFrame, prompts: Mapping[str, Prompt], ids: Mapping[str, str]) -> Facts:
    """The facts of ranked rows, with the relations that have groups, in the order of their first.

    The plausible candidate stands in `pairs`, too. Dropped rows leave gaps between ranks.
    """
    labels = {relation_id: label for label, relation_id in ids.items()}
    relations = relation_table(rows["relation_id"].unique(maintain_order=True), labels)
    positive = pl.struct(object_id=pl.col("rank").cast(pl.String), labels=pl.concat_list("name"))
    pairs = rows.filter(place=0).select(
        "pair_id",
        "relation_id",
        subject_id=pl.format("{}.{}", "frame", "id"),
        subjects=pl.concat_list("known"),
        objects=pl.concat_list(positive),
        split="frame",
    )
    candidates = rows.with_columns(
        candidate_id=pl.format("{}.{}", "pair_id", "rank"),
        label="name",
        is_positive=pl.col("rank") == 1,
    ).select(CANDIDATES.names())
    texts = []
    for relation_id, label in relations.iter_rows():
        prompt = prompts[label]
        known_slot = "object" if prompt.asked == "subject" else "subject"
        for style, text in (("statement", prompt.statement), ("question", prompt.question)):
            template = text.replace(f"<{prompt.asked}>", "[Y]").replace(f"<{known_slot}>", "[X]")
            texts.append((relation_id, style, template, "manual", 0))
    names = ["relation_id", "style", "text", "origin", "group"]
    table = pl.DataFrame(texts, names, orient="row")
    templates = number_templates(table).with_columns(table["style"])
    return check_facts(Facts(relations, templates, pairs, {"candidates": candidates}))
