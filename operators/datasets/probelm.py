"""PRobELM: its authors' files → the canonical tables.

The authors' layout:

    112023.json    a time frame (November to December 2023): a list of groups
    prompts.csv    relation, statement, question with its answer, asked slot; one relation per line

A group is a list of rows: first the plausible triple, then less plausible ones that differ from it
in the subject, then some that differ in the object.

| field | type | meaning |
|---|---|---|
| subject, relation, object | str | the triple, in words |
| id | int | the group's number, the same in each of its rows |
| label | int | 1: the plausible triple; 0: a less plausible one |
| rank | int | 1: the plausible triple; from 2: more to less plausible, restarting in each slot |

The asked slot of the relation says what is ranked: rows that differ from the plausible triple in
that slot alone. The others are left out.

A group becomes a pair, the entity that is known and what is asked of it: `subjects` is the known
entity, `objects` are the candidates, the plausible one first. In a template, [X] is the known
entity and [Y] the asked one, so that the templates of a relation whose subject is asked read
"[Y] is the editor of [X].". An `object_id` is the candidate's rank in the file, `split` the time
frame by its first month: 2023-11.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple

import polars as pl

from factsweep.operators.datasets.columns import check_fields
from factsweep.operators.datasets.facts import Facts, checked
from factsweep.operators.datasets.json_texts import check, parsed
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import columns, empty, schema

PROMPTS = "prompts.csv"
Slot = Literal["subject", "object"]
_OTHER: Mapping[str, Slot] = {"subject": "object", "object": "subject"}

# A row of a file, and the group that it stands in.
ROWS = schema("id int, subject text, relation text, object text, label int, rank int")
_TYPES = {name: int if dtype == pl.Int64 else str for name, dtype in ROWS.items()}
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


class _Group(NamedTuple):
    """A group as it was read, and where it stands."""

    where: str
    frame: str
    rows: Sequence[Mapping[str, Any]]


def groups_from_files(
    files: Mapping[str, str], relation_labels: Mapping[str, str] | None = None
) -> Groups:
    """The canonical tables of the authors' files: their path in the set → their content.

    The files name relations by label. `relation_labels` gives the id of each label that may be
    there; without it every relation is taken and its id is its label.

    Alternatives equal to the plausible entity are dropped (reason COPY), and so are those that
    stand among the alternatives before (DUPLICATE). Files of other kinds are ignored.

    Raises:
        InputError: an unfit file, line or row, or what `checked` refuses.
    """
    named = {PurePosixPath(path).name: path for path in files}
    if PROMPTS not in named:
        raise InputError(f"{PROMPTS} is missing; put it next to the files of the time frames.")
    prompts = _prompts(named[PROMPTS], files[named[PROMPTS]])
    ids = _ids(prompts, relation_labels)
    groups = (
        group
        for path, content in sorted(files.items())
        if path.endswith(".json")
        for group in _groups(PurePosixPath(path), content)
    )
    pairs, dropped = [], []
    for group in groups:
        pair, counts = _pair(group, prompts, ids)
        pairs.append(pair)
        dropped += [(pair["pair_id"], reason, count) for reason, count in counts.items() if count]
    table = pl.DataFrame(pairs, schema=empty("pairs").schema)
    return Groups(_facts(table, prompts, ids), pl.DataFrame(dropped, schema=DROPPED, orient="row"))


def facts_from_files(
    files: Mapping[str, str], relation_labels: Mapping[str, str] | None = None
) -> Facts:
    """The facts of `groups_from_files`."""
    return groups_from_files(files, relation_labels).facts


def with_candidates(facts: Facts) -> Facts:
    """The facts with their candidates in a table of their own; the plausible one stays in `pairs`.

    Until then the objects of a pair are its candidates, each with its rank in the file as its id;
    the plausible one comes first. Gaps between ranks are where rows were dropped.
    """
    rows = facts.pairs.select("pair_id", "relation_id", "objects", frame="split")
    rank = pl.col("object_id").cast(pl.Int64)
    named = (
        rows.explode("objects")
        .unnest("objects")
        .with_columns(
            candidate_id=pl.format("{}.{}", "pair_id", "object_id"),
            label=pl.col("labels").list.first(),
            rank=rank,
            is_positive=rank == 1,
        )
    )
    return replace(
        facts,
        pairs=facts.pairs.with_columns(pl.col("objects").list.head(1)),
        further={"candidates": named.select(CANDIDATES.names())},
    )


def candidates(facts: Facts) -> pl.DataFrame:
    """The candidates of each pair, in the order of the file (columns: CANDIDATES).

    `rank` is that of the file: 1 is the plausible one.

    Raises:
        InputError: the facts were read by a version that kept the candidates among the pairs.
    """
    if "candidates" not in facts.further:
        raise InputError("these facts are of an earlier version and have no candidates; run again.")
    return facts.further["candidates"]


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
    fields = [name for name in ROWS if name != "id"]
    order = [*fields[:3], "id", *fields[3:]]
    groups = rows.select(order).partition_by("id", maintain_order=True)
    return json.dumps([group.to_dicts() for group in groups], ensure_ascii=False) + "\n"


def file_of_prompts(prompts: Iterable[Prompt]) -> str:
    """The authors' prompts.csv.

    >>> prompt = Prompt("uses", "<subject> uses <object>.", "<subject>? <object>", "object")
    >>> file_of_prompts([prompt]).rstrip()
    'uses, <subject> uses <object>., <subject>? <object>, <object>'
    """
    lines = (", ".join([*each[:3], f"<{each.asked}>"]) for each in prompts)
    return "".join(f"{line}\n" for line in lines)


def _prompts(path: str, content: str) -> dict[str, Prompt]:
    """The prompt of each relation; there is no header, and no field holds a comma and a blank."""
    prompts: dict[str, Prompt] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        fields = [field.strip() for field in line.split(", ")]
        if len(fields) != len(Prompt._fields):
            raise InputError(
                f"{where}: {len(fields)} fields, expected {', '.join(Prompt._fields)}; "
                "write them with a comma and a blank between."
            )
        relation, statement, question, asked = fields
        if relation in prompts:
            raise InputError(f"{where}: {relation} has a line already; leave one out.")
        if asked not in ("<subject>", "<object>"):
            raise InputError(f"{where}: asked slot {asked!r}; write <subject> or <object>.")
        for text in (statement, question):
            for slot in ("<subject>", "<object>"):
                if slot not in text:
                    raise InputError(f"{where}: {text!r} has no {slot}; put it in.")
        slot_name: Slot = "subject" if asked == "<subject>" else "object"
        prompts[relation] = Prompt(relation, statement, question, slot_name)
    return prompts


def _ids(
    prompts: Mapping[str, Prompt], relation_labels: Mapping[str, str] | None
) -> dict[str, str]:
    """The id of each relation's label."""
    if relation_labels is None:
        return {relation: relation for relation in prompts}
    return {label: relation_id for relation_id, label in relation_labels.items()}


def _groups(path: PurePosixPath, content: str) -> Iterator[_Group]:
    frame = _frame(path)
    groups = parsed(content, str(path), "correct the file")
    if not isinstance(groups, list):
        raise InputError(f"{path}: no list of groups; give a list of lists of rows.")
    ids: set[int] = set()
    for number, rows in enumerate(groups):
        where = f"{path}, group {number} (counted from 0)"
        _check(where, isinstance(rows, list) and rows, "no list of rows", rows)
        for place, row in enumerate(rows):
            _check_row(f"{where}, row {place}", row, rows[0], first=place == 0)
        _check(where, rows[0]["id"] not in ids, "its id stands in an earlier group", rows[0]["id"])
        ids.add(rows[0]["id"])
        yield _Group(where, frame, rows)


def _frame(path: PurePosixPath) -> str:
    """The first month of a time frame, by its file's name: 112023.json → 2023-11."""
    found = re.fullmatch(r"(0[1-9]|1[0-2])([0-9]{4})", path.stem)
    if found is None:
        raise InputError(
            f"{path}: the name is no time frame; call it by its first month, as 112023.json."
        )
    return f"{found[2]}-{found[1]}"


def _check_row(where: str, row: Any, positive: Any, *, first: bool) -> None:
    _check(where, isinstance(row, dict), "no JSON object", row)
    check_fields(where, row, ROWS.names(), "PRobELM's files")
    for name, kind in _TYPES.items():
        value = row.get(name)
        # Not isinstance: a truth value is an int, too.
        fits = type(value) is kind and bool(str(value).strip())
        _check(where, fits, f"{name} must be {'a number' if kind is int else 'a text'}", row)
    same = all(row[name] == positive[name] for name in ("relation", "id"))
    _check(where, same, "relation or id differs from the group's first row", row)
    expected = row["label"] == 1 and row["rank"] == 1 if first else row["label"] == 0
    problem = "the first row must have label 1 and rank 1" if first else "label must be 0"
    _check(where, expected, problem, row)
    _check(where, first or row["rank"] > 1, "rank must be 2 or more", row)


_check = partial(check, what="it")


def _pair(
    group: _Group, prompts: Mapping[str, Prompt], ids: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, int]]:
    """The group as a row of `pairs`, and how many of its candidates were dropped, by reason."""
    positive = group.rows[0]
    relation = positive["relation"]
    if relation not in prompts:
        raise InputError(
            f"{group.where}: {PROMPTS} has no line for its relation {relation}; "
            "add one or drop the group."
        )
    if relation not in ids:
        raise InputError(
            f"{group.where}: the catalog entry does not name its relation {relation}; "
            "add it to the entry or drop the group."
        )
    asked = prompts[relation].asked
    known = _OTHER[asked]
    side = [row for row in group.rows[1:] if row[known] == positive[known]]
    others = [row for row in side if row[asked] != positive[asked]]
    first: dict[str, Mapping[str, Any]] = {}
    for row in others:
        first.setdefault(row[asked], row)
    _check(group.where, first, f"no alternative differs in the {asked} alone", positive)
    ranked = _by_rank(group.where, [positive, *first.values()])
    subject_id = f"{group.frame}.{positive['id']}"
    pair = {
        "pair_id": f"{ids[relation]}.{subject_id}",
        "relation_id": ids[relation],
        "subject_id": subject_id,
        "subjects": [positive[known]],
        "objects": [
            {"object_id": str(rank), "labels": [row[asked]]} for rank, row in ranked.items()
        ],
        "split": group.frame,
    }
    dropped = {COPY: len(side) - len(others), DUPLICATE: len(others) - len(first)}
    return pair, dropped


def _by_rank(where: str, rows: Iterable[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    ranked: dict[int, Mapping[str, Any]] = {}
    for row in rows:
        _check(where, row["rank"] not in ranked, "two alternatives of one rank", row)
        ranked[row["rank"]] = row
    return ranked


def _facts(pairs: pl.DataFrame, prompts: Mapping[str, Prompt], ids: Mapping[str, str]) -> Facts:
    """The facts, with the relations that have groups, in the order of their first one."""
    labels = {relation_id: label for label, relation_id in ids.items()}
    used = pairs["relation_id"].unique(maintain_order=True).to_list()
    relations = [{"relation_id": each, "label": labels[each]} for each in used]
    templates = [row for each in used for row in _templates(each, prompts[labels[each]])]
    facts = Facts(
        pl.DataFrame(relations, schema=empty("relations").schema),
        pl.DataFrame(templates, schema=empty("templates").schema),
        pairs,
    )
    return checked(with_candidates(facts))


def _templates(relation_id: str, prompt: Prompt) -> Iterator[dict[str, Any]]:
    """The statement and the question, [X] for the known entity and [Y] for the asked one."""
    for number, (style, text) in enumerate(
        {"statement": prompt.statement, "question": prompt.question}.items()
    ):
        asked = text.replace(f"<{prompt.asked}>", "[Y]")
        yield {
            "template_id": f"{relation_id}.{number:03d}",
            "relation_id": relation_id,
            "text": asked.replace(f"<{_OTHER[prompt.asked]}>", "[X]"),
            "origin": "manual",
            "group": 0,
            "style": style,
        }
