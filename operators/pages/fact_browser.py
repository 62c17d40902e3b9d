"""The facts of a page with their answers, cut to the bytes that the page can spare."""

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl
import polars.selectors as cs

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.schemas import schema
from factsweep.operators.wording import count

MOST_REPLIES, MOST_EXAMPLES = 5, 4  # of a fact, by each model and setting
_LONGEST, _LONGEST_THOUGHT = 240, 2_000  # characters of a text
_N_SAMPLED = 400  # facts from which the size of all is estimated
_MAX_LABELS = 6  # of right answers, and of names of a subject

# Prompts with their answers. `context` precedes the prompt as the model reads it; `samples` are all
# sampled answers, each with its number, and `n_right` counts the right ones (null: not sampled).
# `thought` precedes the answer (null: the model does not think).
EXAMPLES = schema("""
    pair_id text, context text, prompt text, answer text, right bool, samples text[], n_right int,
    thought text
""") | {"samples": pl.List(pl.Struct({"text": pl.String, "n": pl.Int64}))}


class SettingAnswers(NamedTuple):
    """The answers of one model in one setting: tables of `method.Digest`, and EXAMPLES."""

    name: str
    facts: pl.DataFrame
    replies: pl.DataFrame
    examples: pl.DataFrame


@dataclass(frozen=True)
class PayloadSize:
    """The size of a payload: every n-th fact, rows of each, every n-th in full (0: none)."""

    every: int
    n_replies: int
    n_examples: int
    full: int


class Payload(NamedTuple):
    """A payload, its number of facts and of all facts, and its size."""

    payload: str
    n_facts: int
    n_asked: int
    fill: PayloadSize


# From everything down to sizes that always fit, each about half of the previous one.
_FILLS = (
    *(PayloadSize(1, MOST_REPLIES, MOST_EXAMPLES, full) for full in (1, 2, 6)),
    *(PayloadSize(1, 3, 2, full) for full in (8, 32)),
    PayloadSize(1, 2, 1, 64),
    *(PayloadSize(2**n, 1, 0, 0) for n in range(12)),
)


def encode_facts(facts: Facts, settings: Sequence[SettingAnswers], *, most_bytes: int) -> Payload:
    """The payload of the facts that were asked in any setting; pairs may have a column `kind`.

    A payload that is too large loses prompts in full and samples first, then replies and examples,
    then every second fact.
    """
    pair_ids = pl.concat([setting.facts.select("pair_id") for setting in settings]).unique()
    pairs = facts.pairs.join(pair_ids, on="pair_id", how="semi").sort("relation_id", "pair_id")
    for fill in _FILLS:
        rows = pairs.gather_every(fill.every)
        sample = rows.gather_every(-(-rows.height // _N_SAMPLED) or 1)
        estimate = (
            len(_pack_payload(facts, sample, settings, fill)) * rows.height / max(sample.height, 1)
        )
        if estimate > most_bytes and fill is not _FILLS[-1]:
            continue  # packing everything takes long
        payload = _pack_payload(facts, rows, settings, fill)
        if len(payload) <= most_bytes:
            break
    return Payload(payload, rows.height, pairs.height, fill)


def _pack_payload(
    facts: Facts, pairs: pl.DataFrame, settings: Sequence[SettingAnswers], fill: PayloadSize
) -> str:
    content = _content(facts, pairs, settings, fill)
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def limits(encoded: Payload) -> Iterator[str]:
    """The limits of the payload, in words."""
    fill = encoded.fill
    if encoded.n_facts < encoded.n_asked:
        yield f"{encoded.n_facts:,} of {encoded.n_asked:,} facts, evenly taken from all relations"
    yield f"of each fact, at most {count(fill.n_replies, 'answer')} by each model and setting"
    if not fill.n_examples:
        yield "no prompt"
        return
    yield f"at most {count(fill.n_examples, 'prompt')}"
    n_full = -(-encoded.n_facts // fill.full)
    of_all = f" of {n_full:,} of the facts" if fill.full > 1 else ""
    yield f"the prompts{of_all} as the model read them, with all samples"


def _content(
    facts: Facts, pairs: pl.DataFrame, settings: Sequence[SettingAnswers], fill: PayloadSize
) -> dict[str, Any]:
    relations = facts.relations.join(pairs, on="relation_id", how="semi").sort("relation_id")
    index = {relation: i for i, relation in enumerate(relations["relation_id"])}
    full = set(pairs["pair_id"].gather_every(fill.full)) if fill.full else set()
    contexts: dict[str, int] = {}
    columns = [_by_pair(s, pairs.select("pair_id"), fill, full, contexts) for s in settings]
    answers = pl.concat(s.facts.select("pair_id", "right") for s in settings).unique("pair_id")
    labels = pl.col("subjects", "right").list.head(_MAX_LABELS)
    rows = pairs.join(answers, on="pair_id", maintain_order="left")
    facts_rows = [
        [index[relation], subjects, right, [column.get(pair) for column in columns], *kind]
        for relation, pair, subjects, right, *kind in rows.select(
            "relation_id", "pair_id", labels, cs.by_name("kind", require_all=False)
        ).rows()
    ]
    return {
        "asked": [setting.name for setting in settings],
        "contexts": list(contexts),
        "relations": relations.select("relation_id", pl.col("label").fill_null("")).rows(),
        "facts": facts_rows,
    }


def _by_pair(
    setting: SettingAnswers,
    pairs: pl.DataFrame,
    fill: PayloadSize,
    full: Set[str],
    contexts: dict[str, int],
) -> Mapping[str, list[Any]]:
    """By pair: share, n, replies (answer, note, right), examples (`_example`)."""
    short = pl.col("answer").str.slice(0, _LONGEST)
    replies = setting.replies.with_columns(short).select("pair_id", "answer", "note", "right")
    reply_rows = _first_rows(replies, pairs, fill.n_replies)
    example_rows = _first_rows(setting.examples, pairs, fill.n_examples)
    rows = setting.facts.join(pairs, on="pair_id", how="semi")
    columns = {}
    for pair, share, n in rows.select("pair_id", "share", "n").iter_rows():
        own_contexts = contexts if pair in full else None
        columns[pair] = [
            None if share is None else round(share, 3),
            n,
            [list(reply.values()) for reply in reply_rows.get(pair, [])],
            [_example(example, own_contexts) for example in example_rows.get(pair, [])],
        ]
    return columns


def _example(row: Mapping[str, Any], contexts: dict[str, int] | None) -> list[Any]:
    """A prompt: text, answer, right; with `contexts` also its context, samples, thought."""
    prompt, answer, right = row["prompt"], row["answer"], row["right"]
    if contexts is None:
        return [prompt[:_LONGEST], answer and answer[:_LONGEST], right]
    context = contexts.setdefault(row["context"] or "", len(contexts))
    samples, thought = row["samples"], row["thought"]
    if samples is not None:
        samples = [[sample["text"], sample["n"]] for sample in samples]
    values = [prompt, answer, right, context, samples, row["n_right"]]
    return values if thought is None else [*values, thought[:_LONGEST_THOUGHT]]


def _first_rows(rows: pl.DataFrame, pairs: pl.DataFrame, n: int) -> dict[str, list[dict[str, Any]]]:
    """The first rows of each pair, without its id."""
    if not n:  # Polars' head(0) of a group is a row of nulls
        return {}
    rows = rows.join(pairs, on="pair_id", how="semi", maintain_order="left")
    return rows.group_by("pair_id", maintain_order=True).head(n).rows_by_key("pair_id", named=True)
