"""The fact browser's payload: what goes in comes out, and it stays within its bytes."""

import base64
import gzip
import json
from typing import Any

import polars as pl
import pytest

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.pages.fact_browser import (
    EXAMPLES,
    Payload,
    SettingAnswers,
    encode_facts,
    limits,
)
from factsweep.operators.schemas import empty

FULL_SIZE = {"relations": 41, "pairs": 34_000, "settings": 2}


def unpacked(browser: Payload) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(browser.payload)))
    return content


def facts_of(n_pairs: int, n_relations: int) -> Facts:
    """Facts with names that do not repeat, so that compression has no easy work."""
    relations = [f"P{i}" for i in range(n_relations)]
    objects = [
        [{"object_id": f"Q{i}", "labels": [f"object {i * 7919 % 4001}"]}] for i in range(n_pairs)
    ]
    pairs = pl.DataFrame(
        {
            "pair_id": [f"{relations[i % n_relations]}.Q{i}" for i in range(n_pairs)],
            "relation_id": [relations[i % n_relations] for i in range(n_pairs)],
            "subjects": [[f"Subject {i * 104729 % 999983}", f"also {i}"] for i in range(n_pairs)],
            "objects": objects,
        }
    )
    names = pl.DataFrame({"relation_id": relations, "label": [f"relation {r}" for r in relations]})
    return Facts(names, empty("templates"), pairs)


def asked(
    facts: Facts,
    name: str,
    seed: int,
    *,
    n_replies: int = 5,
    n_examples: int = 4,
    n_samples: int = 3,
) -> SettingAnswers:
    """What a model might have said: mostly answers of its own."""
    ids = facts.pairs.select("pair_id").with_row_index("i")
    draw = (pl.col("i") * 31 + pl.col("j") * 17 + seed * 13) % 5003
    replies = ids.join(pl.DataFrame({"j": range(n_replies)}), how="cross").select(
        "pair_id",
        answer=pl.format("answer {}", draw),
        note=pl.format("{}×", 90 - pl.col("j")),
        right=draw % 3 == 0,
    )
    examples = ids.join(pl.DataFrame({"j": range(n_examples)}), how="cross").select(
        "pair_id",
        prompt=pl.format(
            "Q: The thing that {} is known for, as {} has it, is [MASK]. A:", "i", draw
        ),
        answer=pl.format("answer {}", draw),
        right=draw % 3 == 0,
        context=pl.format("A relation of the {}th kind.\n", pl.col("i") % 41),
        samples=pl.concat_list(
            pl.struct(text=pl.format("sample {} of {}", pl.lit(k), "i"), n=pl.lit(50 - k, pl.Int64))
            for k in range(n_samples)
        ),
        n_right=pl.lit(7, pl.Int64),
        thought=pl.when(pl.col("i") == 0).then(pl.lit("Hm. " * 900)),
    )
    shares = ids.select(
        "pair_id",
        share=(pl.col("i") * 37 + seed) % 100 / 100,
        n=pl.lit(190),
        right=pl.concat_list(pl.lit("x")),
    )
    return SettingAnswers(name, shares, replies, examples.select(EXAMPLES.names()))


def test_encoded_small_set_keeps_every_fact_and_text() -> None:
    facts = facts_of(6, 2)
    browser = encode_facts(facts, [asked(facts, "zero-shot", 1)], most_bytes=100_000)
    content = unpacked(browser)
    assert content["asked"] == ["zero-shot"]
    assert [names[0] for _, names, *_ in content["facts"]] == [
        names[0] for names in facts.pairs.sort("relation_id", "pair_id")["subjects"]
    ]
    share, n, replies, examples = content["facts"][0][3][0]
    assert (share, n, len(replies), len(examples)) == (0.01, 190, 5, 4)
    _, _, _, context, samples, n_right, thought = examples[0]
    assert content["contexts"][context] == "A relation of the 0th kind.\n"
    assert samples == [["sample 0 of 0", 50], ["sample 1 of 0", 49], ["sample 2 of 0", 48]]
    assert n_right == 7
    assert thought == ("Hm. " * 900)[:2_000]
    assert len(content["facts"][1][3][0][3][0]) == 6  # of this prompt nothing was thought
    assert "the prompts as the model read them, with all samples" in list(limits(browser))


def test_encoded_long_text_is_whole_where_a_prompt_is_in_full() -> None:
    facts = facts_of(1, 1)
    said = asked(facts, "zero-shot", 1, n_examples=1)
    long = "word " * 400
    columns = {name: pl.lit(long) for name in ("prompt", "answer", "context")}
    said = said._replace(examples=said.examples.with_columns(**columns))
    content = unpacked(encode_facts(facts, [said], most_bytes=100_000))
    prompt, answer, _, context, *_ = content["facts"][0][3][0][3][0]
    assert (prompt, answer, content["contexts"][context]) == (long, long, long)


def test_encoded_text_that_ends_a_script_cannot_stand_in_the_payload() -> None:
    facts = facts_of(1, 1)
    said = asked(facts, "zero-shot", 1, n_replies=1)
    evil = "</script><script>alert(1)</script>"
    said = said._replace(replies=said.replies.with_columns(answer=pl.lit(evil)))
    browser = encode_facts(facts, [said], most_bytes=100_000)
    assert "<" not in browser.payload
    assert unpacked(browser)["facts"][0][3][0][2][0][0] == evil


@pytest.mark.parametrize("most_bytes", [60_000, 12_000])
def test_encoded_large_set_is_cut_and_says_so(most_bytes: int) -> None:
    facts = facts_of(2_000, 3)
    browser = encode_facts(facts, [asked(facts, "zero-shot", 1)], most_bytes=most_bytes)
    assert len(browser.payload) <= most_bytes
    content = unpacked(browser)
    assert len(content["facts"]) == browser.n_facts
    assert {relation for relation, *_ in content["facts"]} == {0, 1, 2}
    said = "; ".join(limits(browser))
    assert (f"{browser.n_facts:,} of 2,000 facts" in said) == (browser.n_facts < 2_000)
    full = [bool(fact[3][0][3]) and len(fact[3][0][3][0]) == 6 for fact in content["facts"]]
    assert not all(full)
    assert (f"the prompts of {sum(full):,} of the facts" in said) == any(full)


def test_encoded_fact_that_a_setting_was_not_asked_is_null_there() -> None:
    facts = facts_of(2, 1)
    part = Facts(facts.relations, facts.templates, facts.pairs.head(1))
    said = [asked(facts, "all", 1), asked(part, "part", 1)]
    content = unpacked(encode_facts(facts, said, most_bytes=100_000))
    assert [answers[1] is None for *_, answers in content["facts"]] == [False, True]


@pytest.mark.slow
def test_encoded_full_myriadlama_keeps_every_fact() -> None:
    facts = facts_of(FULL_SIZE["pairs"], FULL_SIZE["relations"])
    said = [
        asked(facts, f"setting {i}", i, n_replies=3, n_examples=2)
        for i in range(FULL_SIZE["settings"])
    ]
    browser = encode_facts(facts, said, most_bytes=2_500_000)
    assert len(browser.payload) <= 2_500_000
    assert browser.n_facts == browser.n_asked == FULL_SIZE["pairs"]
