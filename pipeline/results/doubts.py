"""Doubts: what is missing of the answers, and which no number should be read from, in sentences.

Also what a server did otherwise than an engine here: said in the run, and on its page.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from factsweep.operators.matching.fold import INVISIBLE, SPECIAL_TOKEN
from factsweep.operators.matching.typed import n_ambiguous
from factsweep.operators.methods.ability import GENERATE
from factsweep.operators.prompts.chat import THOUGHT, THOUGHT_END
from factsweep.operators.schemas import empty
from factsweep.operators.wording import count
from factsweep.pipeline.decoding.remaining import open_counts
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.stages import given
from factsweep.pipeline.stages.generate import PROMPTS_REMOVED, REQUESTS, SERVED, WITHOUT
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.shard import numbers

_FEW = 20  # answers, which may be empty or alike by chance
_MOST = 0.5  # of them, before somebody should look at them
_THOUGHTS = 0.05
_SHOWN = 3
_LENGTH = 60
_TREATED = {
    given.PROMPT_REMOVED: "began with the prompt, which was removed",
    given.CUT_AT_STOP: "went on behind a stop (decoding.stop), and were cut there",
    given.NOTHING_LEFT: "begin with a stop (decoding.stop), so that nothing is left of them and "
    "they are wrong; where a line end in front is no part of the answer, remove it from the file",
    given.THOUGHT_KEPT: "have a thought, which is measured as the answer; if the system thinks "
    "before it answers, give model.thinking=on",
}


def doubts(branches: Sequence[PastBranch]) -> list[str]:
    """A sentence for each setting of which prompts have no answer or samples, with the reasons.

    And one for each thing that most of its answers have in common, and should not: they are empty,
    or the same, or cut, or begin with a thought; with some of them.
    """
    return [
        f"{branch}: {what}"
        for branch in branches
        for what in (*_all_unanswered(branch), *_of(branch))
    ]


def _all_unanswered(branch: PastBranch) -> Iterator[str]:
    """How many prompts, blocks of samples and canary prompts have no answer."""
    admitted = [branch.artifacts[name] for name in ("admitted",) if name in branch.artifacts]
    yield from unanswered(error_reasons([*admitted, branch.answers]))
    blocks = [artifact for artifact in branch.further if artifact.stage == "samples"]
    yield from unanswered(error_reasons(blocks), "block of samples", "blocks of samples")
    canary = [branch.artifacts[name] for name in ("canary",) if name in branch.artifacts]
    yield from unanswered(error_reasons(canary), "canary prompt", "canary prompts")


def error_reasons(artifacts: Iterable[Artifact]) -> pl.Series:
    """Why prompts of some artifacts have no answer, one row per prompt and artifact."""
    complete = [artifact for artifact in artifacts if artifact.is_complete()]
    failed = [artifact for artifact in complete if any(artifact.rows("errors").values())]
    reasons = [
        rows["reason"] for artifact in failed for rows in artifact.each("errors", ["reason"])
    ]
    return pl.concat([empty("errors")["reason"], *reasons])


def unanswered(reasons: pl.Series, noun: str = "prompt", plural: str = "prompts") -> Iterator[str]:
    """How many prompts have no answer, by why.

    >>> list(unanswered(pl.Series(["no_text", "content_filter", "no_text"])))
    ['3 prompts have no answer: no_text 2, content_filter 1.']
    """
    if not reasons.is_empty():
        listed = ", ".join(f"{why} {n:,}" for why, n in Counter(reasons).most_common())
        what = f"1 {noun} has" if len(reasons) == 1 else f"{len(reasons):,} {plural} have"
        yield f"{what} no answer: {listed}."


def _of(branch: PastBranch) -> Iterator[str]:
    said = branch.answers
    if branch.how.ask.ability != GENERATE or not said.is_complete():
        return
    yield from treated(said)
    if "values" in branch.artifacts["matched"].recipe.fields:
        yield from ambiguous(branch.matched_answers()["key"])
    answers = list(said.each(said.stage, ["text", "finish_reason"]))
    if answers:
        yield from found(pl.concat(answers))
    thoughts = [said.read("thoughts", shard)["ended"] for shard in said.published("thoughts")]
    if thoughts:
        yield from cut(pl.concat(thoughts).explode())


def treated(answers: Artifact) -> Iterator[str]:
    """What was removed from answers that were given, or should have been."""
    n_answers = sum(answers.rows(answers.stage).values())
    for name, n in _counted([answers], "").items():
        if n and name in _TREATED:
            yield f"{n:,.0f} of {count(n_answers, 'given text')} {_TREATED[name]}."


def ambiguous(keys: pl.Series) -> Iterator[str]:
    """How many answers, of their keys, are a date that can be read as two days."""
    if n := n_ambiguous(keys):
        yield (
            f"{count(n, 'answer')} of {len(keys):,} can be read as two dates, such as 03/04/1900; "
            "it is right if either is."
        )


def cut(ended: pl.Series) -> Iterator[str]:
    """That more thoughts than a few were closed before they ended, of how each of them ended.

    >>> list(cut(pl.Series(["itself"] * 15 + ["budget"] * 4 + ["silence"])))[0].partition(";")[0]
    '5 of 20 thoughts did not end by themselves (4 at the budget, 1 in silence)'
    """
    known = ended.drop_nulls()
    closed = known.filter(known.is_in(("budget", "silence")))
    if len(closed) > _THOUGHTS * len(known):
        at_budget = int((closed == "budget").sum())
        yield (
            f"{len(closed):,} of {count(len(known), 'thought')} did not end by themselves "
            f"({at_budget:,} at the budget, {len(closed) - at_budget:,} in silence); they were "
            "closed, and the answers are those behind them. Give more decoding.thinking_tokens."
        )


def found(answers: pl.DataFrame) -> Iterator[str]:
    """What most of some answers (text, finish_reason) have in common, if they are enough to tell.

    >>> ended = {"finish_reason": ["length"] * 5 + ["stop"] * 20}
    >>> list(found(pl.DataFrame({"text": ["Paris"] * 15 + ["Rome"] * 10, **ended})))
    ["15 of 25 answers are the same: 'Paris'."]
    >>> list(found(pl.DataFrame({"text": ["", " "] * 12 + ["Oslo"], **ended})))
    ['24 of 25 answers are empty.']
    """
    known = answers.drop_nulls("text").with_columns(pl.col("text").str.strip_chars())
    texts = known["text"]
    ignored = {"special tokens": SPECIAL_TOKEN, "characters that nobody sees": INVISIBLE}
    for mark, pattern in ignored.items():
        marked = texts.filter(texts.str.contains(pattern))
        if not marked.is_empty():
            yield f"{_share(marked, texts)} hold {mark}, which comparing ignores: {_some(marked)}."
    if len(texts) < _FEW:
        return
    ended = known.filter(pl.col("finish_reason") == "length")["text"]
    if len(ended) > _MOST * len(texts):
        yield (
            f"{_share(ended, texts)} were cut at decoding.max_tokens: {_some(ended)}. What is "
            "measured of an answer's words, as the one-word ratio, is of the cut."
        )
    thoughts = texts.filter(texts.str.contains(f"^{THOUGHT}|{THOUGHT_END}"))
    if len(thoughts) > _THOUGHTS * len(texts):
        yield (
            f"{_share(thoughts, texts)} begin with a thought, which is measured in place of the "
            f"answer: {_some(thoughts)}. Let it think first (model.thinking=on), "
            "or switch it off (model.thinking=off), or as the model's card says."
        )
        return
    empty = texts.filter(texts == "")
    if len(empty) > _MOST * len(texts):
        yield f"{_share(empty, texts)} are empty."
        return
    most = texts.value_counts(sort=True).row(0)
    if most[1] > _MOST * len(texts):
        yield f"{most[1]:,} of {count(len(texts), 'answer')} are the same: {_short(most[0])}."


def _share(some: pl.Series, texts: pl.Series) -> str:
    return f"{len(some):,} of {count(len(texts), 'answer')}"


def _some(texts: pl.Series) -> str:
    return ", ".join(map(_short, texts.head(_SHOWN)))


def _short(text: str) -> str:
    words = re.sub(r"\s+", " ", text)
    return repr(words if len(words) <= _LENGTH else f"{words[:_LENGTH]}…")


def differences(model: str, answered: Iterable[Artifact]) -> Iterator[str]:
    """One sentence for each thing, from what was counted with the answers."""
    artifacts = list(answered)
    versions, lacking = served(artifacts), _counted(artifacts, WITHOUT)
    yield from _asked_otherwise(model, lacking.get("n", 0), artifacts)
    if len(versions) > 1:
        listed = ", ".join(f"{name} ({n:,.0f} prompts)" for name, n in versions.items())
        yield (
            f"{model} changed while it answered: {listed}. To keep one of them apart, give "
            "model.revision=<its model or fingerprint>; the answers are then others."
        )
    if n := lacking.get("logprobs"):
        yield (
            f"{model}: the server gave no log-probabilities for {n:,.0f} prompts of the canary, so "
            "they have no confidence of the model's own."
        )
    if "seed" in lacking:
        yield f"{model}: the server takes no seed, so its samples cannot be drawn again."
    elif any(each.stage == "samples" and each.is_complete() for each in artifacts):
        yield f"{model}: a server may ignore seeds, so samples need not come out the same again."


def _asked_otherwise(model: str, n_sampled: float, artifacts: Sequence[Artifact]) -> Iterator[str]:
    """How answers were asked for, or changed, since the server does not do as others do."""
    if n_sampled:
        n_requests = _counted(artifacts, REQUESTS)[""]
        yield (
            f"{model}: the server gives fewer samples per request than it is asked for (n), so "
            f"those of {count(n_sampled, 'prompt')} took {count(n_requests, 'request')}, each of "
            "which costs the prompt's tokens."
        )
    if removed := _counted(artifacts, PROMPTS_REMOVED):
        yield (
            f"{model}: the server repeats the prompt before its answer; the prompt was removed "
            f"from {count(removed[''], 'answer')}."
        )


def served(answered: Iterable[Artifact]) -> dict[str, float]:
    """What a server said that it answered with, and how many prompts with each."""
    return _counted(answered, SERVED)


def _counted(answered: Iterable[Artifact], prefix: str) -> dict[str, float]:
    """The counts whose names begin with a text, by what comes behind it."""
    found = Counter[str]()
    for artifact in answered:
        shards = artifact.counts(artifact.stage).values()
        for counts in (*shards, *open_counts(artifact)):
            found.update({k: n for k, n in numbers(counts).items() if k.startswith(prefix)})
    return {name.removeprefix(prefix): n for name, n in sorted(found.items())}
