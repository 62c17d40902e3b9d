"""Notes: what a reader of the numbers must know, in sentences for the log, run.json and the page.

Code of others that ran; rows of the data set that contradict each other; what a server did
otherwise than an engine here; what is missing of the answers, and which no number should be read
from; published numbers of other facts; prompts that have their answer in them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.matching.fold import INVISIBLE, SPECIAL_TOKEN
from factsweep.operators.matching.typed import n_ambiguous
from factsweep.operators.methods.ability import GENERATE
from factsweep.operators.methods.method import Result
from factsweep.operators.metrics.belief.answers import ACC_AT_1, acc_at_1_terms
from factsweep.operators.metrics.shared.bootstrap import bootstrap_ratio
from factsweep.operators.prompts.chat import THOUGHT, THOUGHT_END
from factsweep.operators.prompts.expansion import showing, telling
from factsweep.operators.schemas import schema
from factsweep.operators.tables.shared.numbers import SHARE
from factsweep.operators.tables.shared.paper_table import join_published
from factsweep.operators.wording import count
from factsweep.pipeline.decoding.remaining import read_open_counts
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.results.past import PastBranch, by_setting
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages import given
from factsweep.pipeline.stages.expand import by_relation, prompts_of, shards_of
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
TITLE = "Acc@1 by where a right answer stands in the prompt"
LEAKS = schema(
    "model text, setting text, place text, n int, value float, ci_low float, ci_high float"
)
PLACES = ("its demonstrations", "what it asks", "nowhere")
_MANY = 0.1  # of the prompts: Acc@1 of all of them should not be read alone
_JUDGED = ("prompt_id", "relation_id", "pair_id", "correct")
_READ = ("prompt_id", "context_id", "pair_id", "query")


def notes(
    branches: Sequence[PastBranch], result: Result, leaking: pl.DataFrame | None = None
) -> list[str]:
    """All sentences about settings over the same facts; `leaking`: rows of LEAKS.

    Of each setting: which prompts have no answer or samples, with the reasons, and what most of its
    answers have in common, and should not: they are empty, or the same, or cut, or begin with a
    thought; with some of them.
    """
    first = branches[0]
    trusted = {b.model for b in branches if b.record["run"]["model"].get("trust_remote_code")}
    wrong = facts_stage.contradictions(first.artifacts["facts"])
    return [
        *[
            f"trust_remote_code is on for {model}: code from the hub ran."
            for model in sorted(trusted)
        ],
        *[f"{first.benchmark}: {line}" for line in wrong],
        *chain.from_iterable(differences(*each) for each in _by_server(branches).items()),
        *[f"{b}: {line}" for b in branches for line in (*_unanswered(b), *_of_answers(b))],
        *_published(first, result),
        *([] if leaking is None else said(leaking)),
    ]


def departure(branch: PastBranch, facts: Facts) -> catalog.Departure | None:
    """What other facts were asked than the published numbers of a benchmark are of."""
    n_names = branch.record["run"]["benchmark"]["names_per_subject"]
    return catalog.departure(facts, branch.benchmark, n_names)


def _published(branch: PastBranch, result: Result) -> Iterator[str]:
    """Say that measured numbers stand next to published ones of other facts."""
    if (
        result.published is None
        or join_published(result.tables["metrics"], result.published).is_empty()
    ):
        return
    if (other := departure(branch, result.facts)) is not None:
        yield (
            f"{branch.benchmark}: the published numbers are of other facts "
            f"({other.sentence}), so no differences are shown."
        )


def _by_server(branches: Sequence[PastBranch]) -> dict[str, list[Artifact]]:
    """What servers answered, by the model."""
    found: dict[str, list[Artifact]] = {}
    for branch in branches:
        if branch.record["run"]["model"].get("source") == "endpoint":
            again = branch.artifacts.get(branch.how.ask.ability.again or "")
            mine = (branch.answers, *branch.further, *([] if again is None else [again]))
            known = found.setdefault(branch.model, [])
            known += [each for each in mine if each not in known]
    return found


def _unanswered(branch: PastBranch) -> Iterator[str]:
    """How many prompts, blocks of samples and canary prompts have no answer, by why."""
    admitted, canary = (
        [branch.artifacts[name]] if name in branch.artifacts else []
        for name in ("admitted", "canary")
    )
    blocks = [artifact for artifact in branch.further if artifact.stage == "samples"]
    for noun, plural, artifacts in (
        ("prompt", "prompts", [*admitted, branch.answers]),
        ("block of samples", "blocks of samples", blocks),
        ("canary prompt", "canary prompts", canary),
    ):
        reasons = Counter[str]()
        for artifact in artifacts:
            if artifact.is_complete() and any(artifact.rows("errors").values()):
                for rows in artifact.each("errors", ["reason"]):
                    reasons.update(rows["reason"])
        if n := reasons.total():
            listed = ", ".join(f"{why} {times:,}" for why, times in reasons.most_common())
            what = f"1 {noun} has" if n == 1 else f"{n:,} {plural} have"
            yield f"{what} no answer: {listed}."


def _of_answers(branch: PastBranch) -> Iterator[str]:
    said = branch.answers
    if branch.how.ask.ability != GENERATE or not said.is_complete():
        return
    yield from treated(said)
    if "values" in branch.artifacts["matched"].recipe.fields:
        keys = branch.matched_answers()["key"]
        if n := n_ambiguous(keys):
            yield (
                f"{count(n, 'answer')} of {len(keys):,} can be read as two dates, such as "
                "03/04/1900; it is right if either is."
            )
    answers = list(said.each(said.stage, ["text", "finish_reason"]))
    if answers:
        yield from alike(pl.concat(answers))
    thoughts = [said.read("thoughts", shard)["ended"] for shard in said.published("thoughts")]
    if thoughts:
        yield from cut(pl.concat(thoughts).explode())


def treated(answers: Artifact) -> Iterator[str]:
    """What was removed from answers that were given, or should have been."""
    n_answers = sum(answers.rows(answers.stage).values())
    for name, n in _counted([answers], "").items():
        if n and name in _TREATED:
            yield f"{n:,.0f} of {count(n_answers, 'given text')} {_TREATED[name]}."


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


def alike(answers: pl.DataFrame) -> Iterator[str]:
    """What most of some answers (text, finish_reason) have in common, if they are enough to tell.

    >>> ended = {"finish_reason": ["length"] * 5 + ["stop"] * 20}
    >>> list(alike(pl.DataFrame({"text": ["Paris"] * 15 + ["Rome"] * 10, **ended})))
    ["15 of 25 answers are the same: 'Paris'."]
    >>> list(alike(pl.DataFrame({"text": ["", " "] * 12 + ["Oslo"], **ended})))
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
    if "n" in lacking:
        requests = count(_counted(artifacts, REQUESTS)[""], "request")
        yield (
            f"{model}: the server gives fewer samples per request than it is asked for (n), so "
            f"those of {count(lacking['n'], 'prompt')} took {requests}, each of which costs the "
            "prompt's tokens."
        )
    if removed := _counted(artifacts, PROMPTS_REMOVED):
        yield (
            f"{model}: the server repeats the prompt before its answer; the prompt was removed "
            f"from {count(removed[''], 'answer')}."
        )
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


def served(answered: Iterable[Artifact]) -> dict[str, float]:
    """What a server said that it answered with, and how many prompts with each."""
    return _counted(answered, SERVED)


def _counted(answered: Iterable[Artifact], prefix: str) -> dict[str, float]:
    """The counts whose names begin with a text, by what comes behind it."""
    found = Counter[str]()
    for artifact in answered:
        shards = artifact.counts(artifact.stage).values()
        for counts in (*shards, *read_open_counts(artifact)):
            found.update({k: n for k, n in numbers(counts).items() if k.startswith(prefix)})
    return {name.removeprefix(prefix): n for name, n in sorted(found.items())}


def leaks(branches: Sequence[PastBranch]) -> pl.DataFrame:
    """Acc@1 of the prompts of each setting by where a right answer stands in them: LEAKS.

    A prompt counts at the first of PLACES; `n` has an answer. Of several seeds the first counts.
    Settings without a leak have no row, nor have those whose prompts were removed.
    """
    found = [row for seeds in by_setting(branches).values() for row in _leaks_of(seeds[0])]
    return pl.DataFrame(found, LEAKS, orient="row")


def leaks_table(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows for people (columns: LEAKS).

    >>> row = ("m", "4-template", "nowhere", 152, 0.25, 0.2, 0.3)
    >>> leaks_table(pl.DataFrame([row], LEAKS, orient="row")).row(0)
    ('m', '4-template', 'nowhere', 152, '.2500', '.2000–.3000')
    """
    counts = {"a right answer in": "place", "prompts": "n"}
    shares = {"Acc@1": SHARE.dashed(pl.col("value")), "95 % interval": SHARE.interval()}
    return rows.select("model", "setting", **counts, **shares)


def said(rows: pl.DataFrame) -> Iterator[str]:
    """A sentence for each setting of which a tenth of the prompts have their answer in them.

    >>> rows = [("m", "s", place, 3 if place == "its demonstrations" else 1, 0.2, None, None)
    ...     for place in ("its demonstrations", "nowhere")]
    >>> list(said(pl.DataFrame(rows, LEAKS, orient="row")))
    ['m, s: 3 of 4 prompts have their answer in them; Acc@1 of the others is .2000.']
    """
    for (model, setting), mine in rows.group_by("model", "setting", maintain_order=True):
        others = mine.filter(place=PLACES[-1])
        n, n_others = int(mine["n"].sum()), int(others["n"].sum())
        if n - n_others > _MANY * n:
            left = SHARE.text(others["value"].item()) if n_others else "unknown: there are none"
            yield (
                f"{model}, {setting}: {n - n_others:,} of {n:,} prompts have their answer in them; "
                f"Acc@1 of the others is {left}."
            )


def _leaks_of(branch: PastBranch) -> Iterator[tuple[object, ...]]:
    method = branch.how
    if method.measure.main_metric != ACC_AT_1.name or method.ask.ability != GENERATE:
        return
    prompts, matched = (branch.artifacts[each] for each in ("prompts", "matched"))
    if not (prompts.is_complete() and matched.is_complete()):
        return
    placed = by_relation(partial(_placed, prompts, branch.facts.pairs), prompts.shards("ranked"))
    first = pl.concat(chain.from_iterable(placed)).unique("prompt_id", keep="first")
    if first.is_empty():
        return
    table = method.measure.answers
    judged = by_relation(partial(_judged, matched, table, first), matched.shards(table))
    for number, place in enumerate(PLACES):
        counts, terms = zip(*(each[number] for each in judged), strict=True)
        if n := sum(counts):
            value = bootstrap_ratio(pl.concat(terms), seed=branch.seed).overall
            yield branch.model, branch.setting, place, n, *value


def _judged(
    matched: Artifact, table: str, placed: pl.DataFrame, relation: str
) -> list[tuple[int, pl.DataFrame]]:
    """Of each place, how many answers of a relation it has, and the terms of their Acc@1."""
    rows = matched.read(table, relation, _JUDGED)
    rows = rows.join(placed, on="prompt_id", how="left", maintain_order="left")
    rows = rows.with_columns(pl.col("place").fill_null(PLACES[-1]))
    parts = (rows.filter(place=place) for place in PLACES)
    return [(mine.height, acc_at_1_terms(mine)) for mine in parts]


def _placed(prompts: Artifact, pairs: pl.DataFrame, relation: str) -> list[pl.DataFrame]:
    """A relation's prompts with a right answer in them, by place: prompt_id, place."""
    rows = prompts_of(prompts, relation, _READ)
    shards = shards_of(prompts, "contexts", relation)
    contexts = pl.concat(prompts.each("contexts", shards=shards))
    shown = showing(rows, contexts.unique("context_id"), pairs, "object")
    return [
        pl.DataFrame({"prompt_id": ids}, {"prompt_id": pl.String}).with_columns(place=pl.lit(place))
        for place, ids in zip(PLACES, (shown, telling(rows, pairs)), strict=False)
    ]
