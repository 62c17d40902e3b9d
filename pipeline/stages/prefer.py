"""prefer: what a model is asked about clozes: which of some entities it finds more plausible."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.engines.preference import (
    BeamsRequest,
    Preferred,
    PreferRequest,
    Preferrer,
    Search,
)
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.clozes import Ending, Retrieval, chances, ending_tokens
from factsweep.operators.prompts.label_trie import Labels, Name, Trie
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.expand import relation_of, sets_of
from factsweep.pipeline.stages.question import Answered, Question, Questions, Whole, room
from factsweep.pipeline.storage.artifact import Artifact

_CLOZES_AT_ONCE = 256
_SEARCHES: Mapping[str, Search] = {"optimal": "optimal", "exact": "exact"}
_KINDS = ("subjects", "relations")
_SAID = ("label", "logprob", "n_tokens")


@dataclass(frozen=True)
class Chance(Whole):
    """The log-probability of the answer's labels behind `n` clozes of either kind that fit.

    The clozes are of other subjects, and of other relations; KaRR divides by it. It is asked of one
    prompt of each pair.
    """

    facts: Artifact
    base: Artifact
    prompts: Artifact
    n: int
    seed: int
    limit: int

    def answered_of(
        self, rows: pl.DataFrame, engine: Preferrer, tokenizer: Any
    ) -> Iterator[Answered]:
        """The chances of each pair, in the order in which they are complete."""
        asked = dict(self._asked(rows, tokenizer))
        found: dict[str, dict[str, Preferred]] = {name: {} for name in asked}
        yield from (_answered(name, {}) for name, requests in asked.items() if not requests)
        requests = (each for some in asked.values() for each in some)
        for said in engine.preferences(requests):
            name = said.request_id.rsplit("/", 2)[0]
            found[name][said.request_id] = said
            if len(found[name]) == len(asked[name]):
                yield _answered(name, found.pop(name))

    @cached_property
    def _with_base(self) -> Facts:
        """The facts and their knowledge base, read once for all shards of an engine."""
        return facts_stage.with_knowledge_base(self.facts, self.base)

    def _asked(
        self, rows: pl.DataFrame, tokenizer: Any
    ) -> Iterator[tuple[str, Sequence[PreferRequest]]]:
        sets = sets_of(self.prompts, rows)
        clozes = dict[str, Any]()
        for relation_id in set(map(relation_of, rows["template_id"].unique())):
            clozes |= chances(self._with_base, relation_id, self.n, seed=self.seed)
        ending = ending_tokens(tokenizer, "eos")  # which it is changes nothing
        for row in rows.iter_rows(named=True):
            answer = sets[row["candidates_id"]].filter(entity_id=row["answer_id"])
            names = [Name(row["answer_id"], label) for label in answer["labels"][0]]
            labels = Labels(tokenizer, names)
            requests = (
                PreferRequest(
                    request_id=f"{row['prompt_id']}/{kind}/{number:05d}",
                    token_ids=token_ids,
                    trie=trie,
                    ending=ending,
                    answer_id=row["answer_id"],
                    search="given",
                    n=0,
                )
                for kind in _KINDS
                for number, (token_ids, trie) in enumerate(
                    labels.behind(getattr(clozes[row["pair_id"]], kind))
                )
                if len(token_ids) + max(trie.depth) <= self.limit
            )
            yield row["prompt_id"], list(requests)


def _answered(prompt_id: str, found: Mapping[str, Preferred]) -> Answered:
    values: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    for name in sorted(found):
        values[name.rsplit("/", 2)[1]].append(found[name].answer.open_logprob)
    read = sum(each.n_prompt_tokens for each in found.values())
    return Answered.single(prompt_id, values, read=read)


def questions(run: Run, setting: Any, sources: Sequence[Artifact], prompts: Artifact) -> Questions:
    """Preferences behind all clozes; some again, with candidates in another order; baselines'."""
    decoding, n = run.decoding, run.decoding.canary_prompts
    asked = {name: getattr(setting, name) for name in ("retrieval", "n", "ending")}
    once = {**asked, **decoding.fresh()}
    again = {**asked, "n_prompts": n, **decoding.fresh(canary=True)}
    backwards = Prefer(prompts, **asked, backwards=True)
    return Questions(
        Question("preferences", Prefer(prompts, **asked), fields=once),
        Question("preferred_again", backwards, "ranked", n, again) if n else None,
        (*_beams(run), *_chances(run, sources, prompts)),
    )


def _beams(run: Run) -> Iterator[Question]:
    """What the baselines need that read continuations, if they are asked for."""
    decoding, baselines = run.decoding, run.decoding.baselines
    if baselines.beams:
        task = Continue(baselines.beams, decoding.max_tokens, baselines.top_tokens)
        yield Question("beams", task, fields={**asdict(task), **decoding.fresh()})


def _chances(run: Run, sources: Sequence[Artifact], prompts: Artifact) -> Iterator[Question]:
    """What KaRR needs, if it is asked for: of one prompt of each pair."""
    if n := run.decoding.baselines.others:
        facts, base = sources
        task = Chance(facts, base, prompts, n, run.seed, room(run))
        fields = {"others": n, "seed": run.seed, **run.decoding.fresh()}
        yield Question("chances", task, "ranked", fields=fields)


@dataclass(frozen=True)
class Prefer(Whole):
    """The plausibility of the right answer and of its distractors, behind each cloze."""

    prompts: Artifact  # has the candidate sets
    retrieval: Retrieval
    n: int
    ending: Ending
    backwards: bool = False  # candidates last to first, which must change nothing

    def answered_of(
        self, rows: pl.DataFrame, engine: Preferrer, tokenizer: Any
    ) -> Iterator[Answered]:
        """The preferences behind each cloze, in the order in which they are made."""
        for found in engine.preferences(self._requests(rows, tokenizer)):
            right = {name: getattr(found.answer, name) for name in (*_SAID, "open_logprob")}
            names = ("entity_id", *_SAID)
            wrong = [{name: getattr(each, name) for name in names} for each in found.distractors]
            said = {**right, "distractors": wrong}
            yield Answered.single(found.request_id, said, read=found.n_prompt_tokens)

    def _requests(self, rows: pl.DataFrame, tokenizer: Any) -> Iterator[PreferRequest]:
        ending = ending_tokens(tokenizer, self.ending)
        sets = sets_of(self.prompts, rows)
        for mine in rows.partition_by("candidates_id", maintain_order=True):
            candidates = sets[mine["candidates_id"][0]]
            labelled = candidates.select("entity_id", "labels").explode("labels").drop_nulls()
            names = [Name(*row) for row in labelled.iter_rows()]
            labels = Labels(tokenizer, names[::-1] if self.backwards else names)
            order = tuple(candidates.drop_nulls("rank").sort("rank")["entity_id"])
            for part in mine.iter_slices(_CLOZES_AT_ONCE):
                behind = labels.behind(part["text"].to_list())
                for row, (token_ids, trie) in zip(part.iter_rows(named=True), behind, strict=True):
                    _check_answer(row, trie)
                    barred = {row["answer_id"], *(row["left_out"] or ())}
                    yield PreferRequest(
                        request_id=row["prompt_id"],
                        token_ids=token_ids,
                        trie=trie,
                        ending=ending,
                        answer_id=row["answer_id"],
                        search=_SEARCHES.get(self.retrieval, "given"),
                        n=self.n,
                        distractors=tuple(each for each in order if each not in barred),
                        left_out=frozenset(barred),
                    )


@dataclass(frozen=True)
class Continue(Whole):
    """The best continuations of each cloze by beam search, and its likeliest next tokens."""

    width: int
    max_tokens: int
    top_tokens: int

    shares_answers = True

    def answered_of(
        self, rows: pl.DataFrame, engine: Preferrer, tokenizer: Any
    ) -> Iterator[Answered]:
        """The continuations of each cloze, in the order in which they are made."""
        ids = self.token_ids(tokenizer, rows["text"].to_list())
        size = self.width, self.max_tokens, self.top_tokens
        requests = zip(rows["prompt_id"], ids, strict=True)
        for found in engine.beams(BeamsRequest(name, each, *size) for name, each in requests):
            names = ("texts", "logprobs", "top_tokens")
            said = {name: list(getattr(found, name)) for name in names}
            read, written = found.n_prompt_tokens, found.n_tokens
            yield Answered.single(found.request_id, said, read=read, written=written)


def _check_answer(row: Mapping[str, Any], trie: Trie) -> None:
    if row["answer_id"] not in trie.nodes_of:
        raise InputError(
            f"prompt {row['prompt_id']}: the right answer {row['answer_id']} has no label among "
            f"the candidates {row['candidates_id']}; give the entity one in the knowledge base."
        )
