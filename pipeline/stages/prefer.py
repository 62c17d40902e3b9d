"""prefer: the questions about clozes: which of some entities a model finds more plausible."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.engines.preference import (
    BeamsRequest,
    PreferenceResult,
    PreferRequest,
    Preferrer,
    Search,
)
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.clozes import Ending, Retrieval, chances, ending_tokens
from factsweep.operators.prompts.label_trie import Labels, Name
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.expand import relation_of, sets_of
from factsweep.pipeline.stages.question import AnswerRow, Question, Questions, Task, room
from factsweep.pipeline.storage.artifact import Artifact

_CLOZES_AT_ONCE = 256
_SEARCHES: Mapping[str, Search] = {"optimal": "optimal", "exact": "exact"}
_KINDS = ("subjects", "relations")
_SCORES = ("label", "logprob", "n_tokens")


@dataclass(frozen=True)
class Chance(Task):
    """The log-probability of the answer's labels behind `n` clozes of either kind that fit.

    The clozes are of other subjects, and of other relations; KaRR divides by it. One prompt per
    pair is asked.
    """

    facts: Artifact
    base: Artifact
    prompts: Artifact
    n: int
    seed: int
    limit: int

    def answer_rows(
        self, rows: pl.DataFrame, engine: Preferrer, tokenizer: Any
    ) -> Iterator[AnswerRow]:
        """The chances of each pair, in order of completion."""
        requests_by_prompt = dict(self._build_requests(rows, tokenizer))
        results: dict[str, dict[str, PreferenceResult]] = {name: {} for name in requests_by_prompt}
        yield from (
            _build_answer(name, {}) for name, some in requests_by_prompt.items() if not some
        )
        requests = (request for some in requests_by_prompt.values() for request in some)
        for preferred in engine.preferences(requests):
            name = preferred.request_id.rsplit("/", 2)[0]
            results[name][preferred.request_id] = preferred
            if len(results[name]) == len(requests_by_prompt[name]):
                yield _build_answer(name, results.pop(name))

    @cached_property
    def _with_base(self) -> Facts:
        """The facts and their knowledge base, read once for all shards of an engine."""
        return facts_stage.with_knowledge_base(self.facts, self.base)

    def _build_requests(
        self, rows: pl.DataFrame, tokenizer: Any
    ) -> Iterator[tuple[str, Sequence[PreferRequest]]]:
        sets = sets_of(self.prompts, rows)
        clozes = dict[str, Any]()
        for relation_id in set(map(relation_of, rows["template_id"].unique())):
            clozes |= chances(self._with_base, relation_id, self.n, seed=self.seed)
        ending = ending_tokens(tokenizer, "eos")  # any ending gives the same result
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


def _build_answer(prompt_id: str, results: Mapping[str, PreferenceResult]) -> AnswerRow:
    values: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    for name in sorted(results):
        values[name.rsplit("/", 2)[1]].append(results[name].answer.open_logprob)
    n_read = sum(preferred.n_prompt_tokens for preferred in results.values())
    return AnswerRow.single(prompt_id, values, read=n_read)


def questions(run: Run, setting: Any, sources: Sequence[Artifact], prompts: Artifact) -> Questions:
    """Preferences behind all clozes; repeats with reversed candidates; the baselines' inputs."""
    decoding, n = run.decoding, run.decoding.canary_prompts
    fresh, baselines = decoding.fresh(), decoding.baselines
    search = {name: getattr(setting, name) for name in ("retrieval", "n", "ending")}
    answers = Question("preferences", Prefer(prompts, **search), fields={**search, **fresh})
    fields = {**search, "n_prompts": n, **decoding.fresh(canary=True)}
    backwards = Prefer(prompts, **search, backwards=True)
    repeated = Question("preferred_again", backwards, "ranked", n, fields) if n else None
    further_questions = []
    if baselines.beams:
        beams = Continue(baselines.beams, decoding.max_tokens, baselines.top_tokens)
        further_questions.append(Question("beams", beams, fields={**asdict(beams), **fresh}))
    if baselines.others:  # KaRR: one prompt of each pair
        facts, base = sources
        chance = Chance(facts, base, prompts, baselines.others, run.seed, room(run))
        fields = {"others": baselines.others, "seed": run.seed, **fresh}
        further_questions.append(Question("chances", chance, "ranked", fields=fields))
    return Questions(answers, repeated, tuple(further_questions))


@dataclass(frozen=True)
class Prefer(Task):
    """The plausibility of the right answer and of its distractors, behind each cloze."""

    prompts: Artifact  # has the candidate sets
    retrieval: Retrieval
    n: int
    ending: Ending
    backwards: bool = False  # reversed candidates, which must change nothing

    def answer_rows(
        self, rows: pl.DataFrame, engine: Preferrer, tokenizer: Any
    ) -> Iterator[AnswerRow]:
        """The preferences behind each cloze, in order of completion."""
        for result in engine.preferences(self._build_requests(rows, tokenizer)):
            right = {name: getattr(result.answer, name) for name in (*_SCORES, "open_logprob")}
            names = ("entity_id", *_SCORES)
            wrong = [
                {name: getattr(distractor, name) for name in names}
                for distractor in result.distractors
            ]
            answer = {**right, "distractors": wrong}
            yield AnswerRow.single(result.request_id, answer, read=result.n_prompt_tokens)

    def _build_requests(self, rows: pl.DataFrame, tokenizer: Any) -> Iterator[PreferRequest]:
        ending = ending_tokens(tokenizer, self.ending)
        sets = sets_of(self.prompts, rows)
        for prompts in rows.partition_by("candidates_id", maintain_order=True):
            candidates = sets[prompts["candidates_id"][0]]
            labelled = candidates.select("entity_id", "labels").explode("labels").drop_nulls()
            names = [Name(*row) for row in labelled.iter_rows()]
            labels = Labels(tokenizer, names[::-1] if self.backwards else names)
            order = tuple(candidates.drop_nulls("rank").sort("rank")["entity_id"])
            for part in prompts.iter_slices(_CLOZES_AT_ONCE):
                behind = labels.behind(part["text"].to_list())
                for row, (token_ids, trie) in zip(part.iter_rows(named=True), behind, strict=True):
                    if row["answer_id"] not in trie.nodes_of:
                        raise InputError(
                            f"prompt {row['prompt_id']}: the right answer {row['answer_id']} has "
                            f"no label among the candidates {row['candidates_id']}; give the "
                            "entity one in the knowledge base."
                        )
                    barred = {row["answer_id"], *(row["left_out"] or ())}
                    yield PreferRequest(
                        request_id=row["prompt_id"],
                        token_ids=token_ids,
                        trie=trie,
                        ending=ending,
                        answer_id=row["answer_id"],
                        search=_SEARCHES.get(self.retrieval, "given"),
                        n=self.n,
                        distractors=tuple(name for name in order if name not in barred),
                        left_out=frozenset(barred),
                    )


@dataclass(frozen=True)
class Continue(Task):
    """The best continuations of each cloze by beam search, and its likeliest next tokens."""

    width: int
    max_tokens: int
    top_tokens: int

    shares_answers = True

    def answer_rows(
        self, rows: pl.DataFrame, engine: Preferrer, tokenizer: Any
    ) -> Iterator[AnswerRow]:
        """The continuations of each cloze, in order of completion."""
        ids = self.token_ids(tokenizer, rows["text"].to_list())
        size = self.width, self.max_tokens, self.top_tokens
        requests = (
            BeamsRequest(name, token_ids, *size)
            for name, token_ids in zip(rows["prompt_id"], ids, strict=True)
        )
        for beams in engine.beams(requests):
            names = ("texts", "logprobs", "top_tokens")
            answer = {name: list(getattr(beams, name)) for name in names}
            n_read, n_written = beams.n_prompt_tokens, beams.n_tokens
            yield AnswerRow.single(beams.request_id, answer, read=n_read, written=n_written)
