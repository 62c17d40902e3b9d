"""The facts of a page: each with what was said of it, in as many bytes as the page can spare."""

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.schemas import schema
from factsweep.operators.wording import count

MOST_REPLIES, MOST_EXAMPLES = 5, 4  # of a fact, by each model and setting
_LONGEST, _LONGEST_THOUGHT = 240, 2_000  # characters of a text
_FEW = 400  # facts by which the size of all is guessed
_MOST_LABELS = 6  # right answers, and names of a subject, that are shown

# Prompts with their answers. `context` stands before the prompt as the model reads it; `samples`
# are all sampled answers, each with how often it came, and `n_right` counts the right ones; null:
# not sampled. `thought` went before the answer; null: the model does not think.
EXAMPLES = schema("""
    pair_id text, context text, prompt text, answer text, right bool, samples text[], n_right int,
    thought text
""") | {"samples": pl.List(pl.Struct({"text": pl.String, "n": pl.Int64}))}


class Asked(NamedTuple):
    """What one model said when asked in one way: tables of `method.Digest`, and EXAMPLES."""

    name: str
    facts: pl.DataFrame
    replies: pl.DataFrame
    examples: pl.DataFrame


@dataclass(frozen=True)
class Fill:
    """How much a payload holds: every so many-th fact, so many rows of each, so many in `full`."""

    every: int
    n_replies: int
    n_examples: int
    full: int


class Encoded(NamedTuple):
    """A payload, how many facts it has of how many that were asked, and what it was cut to."""

    payload: str
    n_facts: int
    n_asked: int
    fill: Fill


# From everything to what always fits, each about half of the one before.
_FILLS = (
    *(Fill(1, MOST_REPLIES, MOST_EXAMPLES, full) for full in (1, 2, 6)),
    *(Fill(1, 3, 2, full) for full in (8, 32)),
    Fill(1, 2, 1, 64),
    *(Fill(2**n, 1, 0, 0) for n in range(12)),
)


def encoded(facts: Facts, asked: Sequence[Asked], *, most_bytes: int) -> Encoded:
    """The payload of the facts that anyone was asked.

    Where all is too much, prompts in full and samples go first, then replies and examples, then
    facts: every second one that is left, in their order.
    """
    said = pl.concat([each.facts.select("pair_id") for each in asked]).unique()
    pairs = facts.pairs.join(said, on="pair_id", how="semi").sort("relation_id", "pair_id")
    for fill in _FILLS:
        rows = pairs.gather_every(fill.every)
        few = rows.gather_every(-(-rows.height // _FEW) or 1)
        guess = len(_packed(facts, few, asked, fill)) * rows.height / max(few.height, 1)
        if guess > most_bytes and fill is not _FILLS[-1]:
            continue  # packing everything would take long, for nothing
        payload = _packed(facts, rows, asked, fill)
        if len(payload) <= most_bytes:
            break
    return Encoded(payload, rows.height, pairs.height, fill)


def _packed(facts: Facts, pairs: pl.DataFrame, asked: Sequence[Asked], fill: Fill) -> str:
    content = _content(facts, pairs, asked, fill)
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def limits(found: Encoded) -> Iterator[str]:
    """What the payload is limited to, in words."""
    fill = found.fill
    if found.n_facts < found.n_asked:
        yield f"{found.n_facts:,} of {found.n_asked:,} facts, evenly taken from all relations"
    yield f"of each fact, at most {count(fill.n_replies, 'answer')} by each model and setting"
    if not fill.n_examples:
        yield "no prompt"
        return
    yield f"at most {count(fill.n_examples, 'prompt')}"
    n_full = -(-found.n_facts // fill.full)
    of_all = f" of {n_full:,} of the facts" if fill.full > 1 else ""
    yield f"the prompts{of_all} as the model read them, with all samples"


def _content(
    facts: Facts, pairs: pl.DataFrame, asked: Sequence[Asked], fill: Fill
) -> dict[str, Any]:
    relations = facts.relations.join(pairs, on="relation_id", how="semi").sort("relation_id")
    number = {relation: i for i, relation in enumerate(relations["relation_id"])}
    full = set(pairs["pair_id"].gather_every(fill.full)) if fill.full else set()
    contexts: dict[str, int] = {}
    columns = [_by_pair(each, pairs.select("pair_id"), fill, full, contexts) for each in asked]
    right = pl.concat(each.facts.select("pair_id", "right") for each in asked).unique("pair_id")
    labels = pl.col("subjects", "right").list.head(_MOST_LABELS)
    shown = pairs.join(right, on="pair_id", maintain_order="left")
    rows = [
        [number[relation], subjects, right, [column.get(pair) for column in columns]]
        for relation, pair, subjects, right in shown.select("relation_id", "pair_id", labels).rows()
    ]
    named = relations.select("relation_id", pl.col("label").fill_null("")).rows()
    names = [each.name for each in asked]
    return {"asked": names, "contexts": list(contexts), "relations": named, "facts": rows}


def _by_pair(
    asked: Asked, pairs: pl.DataFrame, fill: Fill, full: Set[str], contexts: dict[str, int]
) -> Mapping[str, list[Any]]:
    """Of each pair: share, n, replies (answer, note, right), examples (`_example`)."""
    cut = pl.col("answer").str.slice(0, _LONGEST)
    said = asked.replies.with_columns(cut).select("pair_id", "answer", "note", "right")
    replies = _first(said, pairs, fill.n_replies)
    examples = _first(asked.examples, pairs, fill.n_examples)
    rows = asked.facts.join(pairs, on="pair_id", how="semi")
    return {
        pair: [
            None if share is None else round(share, 3),
            n,
            [list(each.values()) for each in replies.get(pair, [])],
            [_example(each, contexts if pair in full else None) for each in examples.get(pair, [])],
        ]
        for pair, share, n in rows.select("pair_id", "share", "n").iter_rows()
    }


def _example(row: Mapping[str, Any], contexts: dict[str, int] | None) -> list[Any]:
    """A prompt: text, answer, right; with `contexts` also its context, samples, thought."""
    prompt, answer, right = row["prompt"], row["answer"], row["right"]
    if contexts is None:
        return [prompt[:_LONGEST], answer and answer[:_LONGEST], right]
    place = contexts.setdefault(row["context"] or "", len(contexts))
    samples, thought = row["samples"], row["thought"]
    drawn = None if samples is None else [[each["text"], each["n"]] for each in samples]
    found = [prompt, answer, right, place, drawn, row["n_right"]]
    return found if thought is None else [*found, thought[:_LONGEST_THOUGHT]]


def _first(rows: pl.DataFrame, pairs: pl.DataFrame, n: int) -> dict[str, list[dict[str, Any]]]:
    """The first rows of each pair, without its id."""
    if not n:  # Polars' head(0) of a group is a row of nulls
        return {}
    mine = rows.join(pairs, on="pair_id", how="semi", maintain_order="left")
    return mine.group_by("pair_id", maintain_order=True).head(n).rows_by_key("pair_id", named=True)
