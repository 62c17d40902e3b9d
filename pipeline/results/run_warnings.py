"""Notes: warnings on the data, the answers and the numbers for the log, run.json and the page."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

import polars as pl

from factsweep.operators.datasets.object_types import n_ambiguous
from factsweep.operators.matching.text_folding import INVISIBLE, SPECIAL_TOKEN
from factsweep.operators.methods.method import GENERATE, Result
from factsweep.operators.metrics.belief.answers import ACC_AT_1, acc_at_1_terms
from factsweep.operators.metrics.shared.bootstrap import bootstrap_ratio
from factsweep.operators.prompts.chat import THOUGHT, THOUGHT_END
from factsweep.operators.prompts.expansion import prompts_showing, prompts_telling
from factsweep.operators.schemas import schema
from factsweep.operators.tables.shared.numbers import SHARE
from factsweep.operators.tables.shared.paper_table import join_published
from factsweep.operators.wording import count
from factsweep.pipeline.decoding.remaining_prompts import read_counts
from factsweep.pipeline.results.past_runs import PastBranch, by_setting
from factsweep.pipeline.stages import external_answers
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.expand import by_relation, prompts_of, shards_of
from factsweep.pipeline.stages.generate import PROMPTS_REMOVED, REQUESTS, SERVED, WITHOUT
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.shard import sum_counts

_MIN_ANSWERS = 20  # fewer may be empty or equal by chance
_MAX_SHARE = 0.5  # of answers with the same flaw
_MAX_THOUGHTS = 0.05
_N_EXAMPLES = 3
_EXAMPLE_LENGTH = 60
_TREATED = {
    external_answers.PROMPT_REMOVED: "began with the prompt, which was removed",
    external_answers.CUT_AT_STOP: "went on behind a stop (decoding.stop), and were cut there",
    external_answers.NOTHING_LEFT: "begin with a stop (decoding.stop), so that nothing is left "
    "of them and they are wrong; where a line end in front is no part of the answer, remove it "
    "from the file",
    external_answers.THOUGHT_KEPT: "have a thought, which is measured as the answer; if the "
    "system thinks before it answers, give model.thinking=on",
}
TITLE = "Acc@1 by where a right answer stands in the prompt"
LEAKS = schema(
    "model text, setting text, place text, n int, value float, ci_low float, ci_high float"
)
PLACES = ("its demonstrations", "what it asks", "nowhere")
_MAX_LEAKING = 0.1  # of the prompts
_MATCHED_COLUMNS = ("prompt_id", "relation_id", "pair_id", "correct")
_PROMPT_COLUMNS = ("prompt_id", "context_id", "pair_id", "query")


def collect_warnings(
    branches: Sequence[PastBranch], result: Result, leaking: pl.DataFrame | None = None
) -> list[str]:
    """All sentences about settings over the same facts; `leaking`: rows of LEAKS."""
    first = branches[0]
    trusted = {b.model for b in branches if b.record["run"]["model"].get("trust_remote_code")}
    lines = [
        f"trust_remote_code is on for {name}: code from the hub ran." for name in sorted(trusted)
    ]
    contradictions = facts_stage.contradictions(first.artifacts["facts"])
    lines += [f"{first.benchmark}: {line}" for line in contradictions]
    served_by_model = defaultdict[str, dict[str, Artifact]](dict)
    for branch in branches:
        if branch.record["run"]["model"].get("source") == "endpoint":
            repeated = branch.artifacts.get(branch.benchmark_method.ask.ability.repeat_table or "")
            artifacts = filter(None, (branch.answers, *branch.extra_outputs, repeated))
            served_by_model[branch.model] |= {a.store.where(a.folder): a for a in artifacts}
    for model, artifact_by_place in served_by_model.items():
        lines += warn_of_server(model, artifact_by_place.values())
    for branch in branches:
        sentences = (*_warn_of_unanswered(branch), *_warn_of_answers(branch))
        lines += [f"{branch}: {sentence}" for sentence in sentences]
    published, metrics = result.published, result.tables["metrics"]
    is_shown = published is not None and not join_published(metrics, published).is_empty()
    if is_shown and result.departure is not None:
        lines.append(
            f"{first.benchmark}: the published numbers are of other facts ({result.departure}), so "
            "no differences are shown."
        )
    return lines if leaking is None else [*lines, *warn_of_leaks(leaking)]


def _warn_of_unanswered(branch: PastBranch) -> Iterator[str]:
    admitted, canary = map(branch.artifacts.get, ("admitted", "canary"))
    blocks = [artifact for artifact in branch.extra_outputs if artifact.stage == "samples"]
    for noun, plural, artifacts in (
        ("prompt", "prompts", [admitted, branch.answers]),
        ("block of samples", "blocks of samples", blocks),
        ("canary prompt", "canary prompts", [canary]),
    ):
        reasons = Counter[str]()
        for artifact in filter(None, artifacts):
            if artifact.is_complete() and any(artifact.rows("errors").values()):
                for rows in artifact.each("errors", ["reason"]):
                    reasons.update(rows["reason"])
        if n := reasons.total():
            listed = ", ".join(f"{reason} {times:,}" for reason, times in reasons.most_common())
            subject = f"1 {noun} has" if n == 1 else f"{n:,} {plural} have"
            yield f"{subject} no answer: {listed}."


def _warn_of_answers(branch: PastBranch) -> Iterator[str]:
    answers = branch.answers
    if branch.benchmark_method.ask.ability != GENERATE or not answers.is_complete():
        return
    yield from warn_of_treated(answers)
    if "values" in branch.artifacts["matched"].recipe.fields:
        keys = branch.matched_answers()["key"]
        if n := n_ambiguous(keys):
            yield (
                f"{count(n, 'answer')} of {len(keys):,} can be read as two dates, such as "
                "03/04/1900; it is right if either is."
            )
    if texts := list(answers.each(answers.stage, ["text", "finish_reason"])):
        yield from warn_of_equal_answers(pl.concat(texts))
    if shards := answers.list_published("thoughts"):
        endings = pl.concat(answers.read("thoughts", shard)["ended"] for shard in shards)
        yield from warn_of_closed_thoughts(endings.explode())


def warn_of_treated(answers: Artifact) -> Iterator[str]:
    """The parts that were removed from given answers, or should have been."""
    n_answers = sum(answers.rows(answers.stage).values())
    for name, n in _counts_with_prefix([answers], "").items():
        if n and name in _TREATED:
            yield f"{n:,.0f} of {count(n_answers, 'given text')} {_TREATED[name]}."


def warn_of_closed_thoughts(endings: pl.Series) -> Iterator[str]:
    """A note if many thoughts were closed before they ended, from the ending of each thought.

    >>> endings = pl.Series(["itself"] * 15 + ["budget"] * 4 + ["silence"])
    >>> list(warn_of_closed_thoughts(endings))[0].partition(";")[0]
    '5 of 20 thoughts did not end by themselves (4 at the budget, 1 in silence)'
    """
    endings = endings.drop_nulls()
    closed = endings.filter(endings.is_in(("budget", "silence")))
    if len(closed) > _MAX_THOUGHTS * len(endings):
        at_budget = int((closed == "budget").sum())
        yield (
            f"{len(closed):,} of {count(len(endings), 'thought')} did not end by themselves "
            f"({at_budget:,} at the budget, {len(closed) - at_budget:,} in silence); they were "
            "closed, and the answers are those behind them. Give more decoding.thinking_tokens."
        )


def warn_of_equal_answers(answers: pl.DataFrame) -> Iterator[str]:
    """The flaws that most of some answers (text, finish_reason) share.

    >>> ended = {"finish_reason": ["length"] * 5 + ["stop"] * 20}
    >>> list(warn_of_equal_answers(pl.DataFrame({"text": ["Paris"] * 15 + ["Rome"] * 10, **ended})))
    ["15 of 25 answers are the same: 'Paris'."]
    >>> list(warn_of_equal_answers(pl.DataFrame({"text": ["", " "] * 12 + ["Oslo"], **ended})))
    ['24 of 25 answers are empty.']
    """
    rows = answers.drop_nulls("text").with_columns(pl.col("text").str.strip_chars())
    texts = rows["text"]
    ignored = {"special tokens": SPECIAL_TOKEN, "invisible characters": INVISIBLE}
    for kind, pattern in ignored.items():
        marked = texts.filter(texts.str.contains(pattern))
        if not marked.is_empty():
            share = _share(marked, texts)
            yield f"{share} hold {kind}, which comparing ignores: {_examples(marked)}."
    if len(texts) < _MIN_ANSWERS:
        return
    ended = rows.filter(pl.col("finish_reason") == "length")["text"]
    if len(ended) > _MAX_SHARE * len(texts):
        yield (
            f"{_share(ended, texts)} were cut at decoding.max_tokens: {_examples(ended)}. Metrics "
            "of an answer's words, such as the one-word ratio, are those of the cut answers."
        )
    thoughts = texts.filter(texts.str.contains(f"^{THOUGHT}|{THOUGHT_END}"))
    if len(thoughts) > _MAX_THOUGHTS * len(texts):
        yield (
            f"{_share(thoughts, texts)} begin with a thought, which is measured in place of the "
            f"answer: {_examples(thoughts)}. Let it think first (model.thinking=on), "
            "or switch it off (model.thinking=off), or as the model's card says."
        )
        return
    empty = texts.filter(texts == "")
    if len(empty) > _MAX_SHARE * len(texts):
        yield f"{_share(empty, texts)} are empty."
        return
    text, n_times = texts.value_counts(sort=True).row(0)
    if n_times > _MAX_SHARE * len(texts):
        equal_texts = texts.filter(texts == text)
        yield f"{_share(equal_texts, texts)} are the same: {_examples(equal_texts.head(1))}."


def _share(part: pl.Series, texts: pl.Series) -> str:
    return f"{len(part):,} of {count(len(texts), 'answer')}"


def _examples(texts: pl.Series) -> str:
    lines = (re.sub(r"\s+", " ", text) for text in texts.head(_N_EXAMPLES))
    most = _EXAMPLE_LENGTH
    return ", ".join(repr(line if len(line) <= most else f"{line[:most]}…") for line in lines)


def warn_of_server(model: str, answered: Iterable[Artifact]) -> Iterator[str]:
    """How a server departed from an engine here, from the counts stored with its answers."""
    artifacts = list(answered)
    versions, missing = count_served(artifacts), _counts_with_prefix(artifacts, WITHOUT)
    if "n" in missing:
        requests = count(_counts_with_prefix(artifacts, REQUESTS)[""], "request")
        yield (
            f"{model}: the server gives fewer samples per request than requested (n), so "
            f"those of {count(missing['n'], 'prompt')} took {requests}, each at the cost of the "
            "prompt's tokens."
        )
    if removed := _counts_with_prefix(artifacts, PROMPTS_REMOVED):
        yield (
            f"{model}: the server repeats the prompt before its answer; the prompt was removed "
            f"from {count(removed[''], 'answer')}."
        )
    if len(versions) > 1:
        listed = ", ".join(f"{name} ({n:,.0f} prompts)" for name, n in versions.items())
        yield (
            f"{model} changed while it answered: {listed}. To keep one of them apart, give "
            "model.revision=<its model or fingerprint>; its prompts are then asked again."
        )
    if n := missing.get("logprobs"):
        yield (
            f"{model}: the server gave no log-probabilities for {n:,.0f} prompts of the canary, so "
            "they have no confidence of the model's own."
        )
    if "seed" in missing:
        yield f"{model}: the server takes no seed, so its samples cannot be drawn again."
    elif any(artifact.stage == "samples" and artifact.is_complete() for artifact in artifacts):
        yield f"{model}: a server may ignore seeds, so samples need not come out the same again."


def count_served(answered: Iterable[Artifact]) -> dict[str, float]:
    """The models or fingerprints that a server named, and the number of prompts of each."""
    return _counts_with_prefix(answered, SERVED)


def _counts_with_prefix(artifacts: Iterable[Artifact], prefix: str) -> dict[str, float]:
    """The counts whose names begin with a prefix, by the rest of the name."""
    sums = sorted(sum_counts(read_counts(artifacts)).items())
    return {name.removeprefix(prefix): n for name, n in sums if name.startswith(prefix)}


def find_leaks(branches: Sequence[PastBranch]) -> pl.DataFrame:
    """Acc@1 of the prompts of each setting by the place of a right answer in them: LEAKS.

    A prompt counts at the first of PLACES; `n` counts answers. Of several seeds the first counts.
    Settings without a leak have no row, nor settings whose prompts were removed.
    """
    rows = [row for seeds in by_setting(branches).values() for row in _make_leak_rows(seeds[0])]
    return pl.DataFrame(rows, LEAKS, orient="row")


def leaks_table(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows for people (columns: LEAKS).

    >>> row = ("m", "4-template", "nowhere", 152, 0.25, 0.2, 0.3)
    >>> leaks_table(pl.DataFrame([row], LEAKS, orient="row")).row(0)
    ('m', '4-template', 'nowhere', 152, '.2500', '.2000–.3000')
    """
    counts = {"a right answer in": "place", "prompts": "n"}
    shares = {"Acc@1": SHARE.column_with_dashes(pl.col("value")), "95 % interval": SHARE.interval()}
    return rows.select("model", "setting", **counts, **shares)


def warn_of_leaks(rows: pl.DataFrame) -> Iterator[str]:
    """A sentence for each setting with the answer in more than a tenth of its prompts.

    >>> rows = [("m", "s", place, 3 if place == "its demonstrations" else 1, 0.2, None, None)
    ...     for place in ("its demonstrations", "nowhere")]
    >>> list(warn_of_leaks(pl.DataFrame(rows, LEAKS, orient="row")))
    ['m, s: 3 of 4 prompts have their answer in them; Acc@1 of the others is .2000.']
    """
    for (model, setting), group in rows.group_by("model", "setting", maintain_order=True):
        clean = group.filter(place=PLACES[-1])
        n, n_clean = int(group["n"].sum()), int(clean["n"].sum())
        if n - n_clean > _MAX_LEAKING * n:
            value = SHARE.text(clean["value"].item()) if n_clean else "unknown: there are none"
            yield (
                f"{model}, {setting}: {n - n_clean:,} of {n:,} prompts have their answer in them; "
                f"Acc@1 of the others is {value}."
            )


def _make_leak_rows(branch: PastBranch) -> Iterator[tuple[object, ...]]:
    measure = branch.benchmark_method.measure
    if measure.main_metric != ACC_AT_1.name or branch.benchmark_method.ask.ability != GENERATE:
        return
    prompts, matched = (branch.artifacts[stage] for stage in ("prompts", "matched"))
    if not (prompts.is_complete() and matched.is_complete()):
        return
    find = partial(_find_leaking_prompts, prompts, branch.facts.pairs)
    leaking = by_relation(find, prompts.shards("ranked"))
    places = pl.concat(chain.from_iterable(leaking)).unique("prompt_id", keep="first")
    if places.is_empty():
        return
    count_terms = partial(_terms_by_place, matched, measure.answers, places)
    relations = by_relation(count_terms, matched.shards(measure.answers))
    for index, place in enumerate(PLACES):
        counts, terms = zip(*(relation[index] for relation in relations), strict=True)
        if n := sum(counts):
            value = bootstrap_ratio(pl.concat(terms), seed=branch.seed).overall
            yield branch.model, branch.setting, place, n, *value


def _terms_by_place(
    matched: Artifact, table: str, places: pl.DataFrame, relation: str
) -> list[tuple[int, pl.DataFrame]]:
    """The number of answers of a relation at each place, and the terms of their Acc@1."""
    rows = matched.read(table, relation, _MATCHED_COLUMNS)
    rows = rows.join(places, on="prompt_id", how="left", maintain_order="left")
    rows = rows.with_columns(pl.col("place").fill_null(PLACES[-1]))
    parts = (rows.filter(place=place) for place in PLACES)
    return [(part.height, acc_at_1_terms(part)) for part in parts]


def _find_leaking_prompts(
    prompts: Artifact, pairs: pl.DataFrame, relation: str
) -> list[pl.DataFrame]:
    """A relation's prompts with a right answer in them, by place: prompt_id, place."""
    rows = prompts_of(prompts, relation, _PROMPT_COLUMNS)
    shards = shards_of(prompts, "contexts", relation)
    contexts = pl.concat(prompts.each("contexts", shards=shards))
    in_demonstrations = prompts_showing(rows, contexts.unique("context_id"), pairs, "object")
    ids_by_place = zip(PLACES, (in_demonstrations, prompts_telling(rows, pairs)), strict=False)
    return [
        pl.DataFrame({"prompt_id": ids}, {"prompt_id": pl.String}).with_columns(place=pl.lit(place))
        for place, ids in ids_by_place
    ]
