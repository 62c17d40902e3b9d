"""The questions to models: to write answers, to score texts, to fill masks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any

import polars as pl

from factsweep.operators import seeds
from factsweep.operators.engines.protocol import (
    Answer,
    Engine,
    MaskedRequest,
    RefusedRequest,
    Request,
    Sampling,
    Scored,
    Scorer,
    ScoreRequest,
    Thinking,
    score_requests,
)
from factsweep.operators.engines.transformers import MaskedLM
from factsweep.operators.methods.method import PromptSetting
from factsweep.operators.prompts import masked
from factsweep.operators.prompts.chat import turns
from factsweep.operators.prompts.tokens import encode, warnings
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.question import AnswerRow, Question, Questions, Task
from factsweep.pipeline.storage.artifact import Artifact

# In counts: the name that a server gives itself, and the options that it ignored.
SERVED, WITHOUT = "prompts answered by ", "prompts answered without "
REQUESTS = "requests for prompts answered without n"
PROMPTS_REMOVED = "answers without the prompt that they repeated"


def questions(run: Run, setting: PromptSetting) -> Questions:
    """Greedy answers to all prompts; repeated answers and blocks of samples for some.

    The share of repeated answers that differ is the noise floor of the hardware. They alone have
    log-probabilities, which would cost all prompts more than 2 % (benchmarks/bench_logprobs.py).
    """
    decoding, samples = run.decoding, run.decoding.samples
    greedy = Sampling(max_tokens=decoding.max_tokens, stop=decoding.stop)
    canary = replace(greedy, logprobs=True)
    block = replace(
        greedy, n=samples.block_size, temperature=samples.temperature, top_p=samples.top_p
    )
    n_canary = max(decoding.canary_prompts, samples.n_prompts)
    n_blocks = samples.n_answers // samples.block_size if samples.n_prompts else 0

    thinking = None
    if run.model.thinking:
        thinking = Thinking(decoding.thinking_tokens, run.model.reasoning_parser)
    thinks = {} if thinking is None else {"thinking": asdict(thinking)}
    task = Generate(
        greedy,
        run.model.chat_template,
        seed=run.seed,
        as_turns=getattr(setting, "as_", None) == "turns",
        template_kwargs=run.model.template_told or {},
        thinking=thinking,
        prefill=run.model.prefill,
        is_served=run.model.endpoint is not None,
    )
    fields = {"sampling": asdict(greedy), **thinks, **decoding.fresh()}
    answers = Question("generations", task, fields=fields)
    canary_fields = {"sampling": asdict(canary), "n_prompts": n_canary, **thinks}
    canary_fields |= decoding.fresh(canary=True)
    canary_task = replace(task, sampling=canary)
    repeated = Question("canary", canary_task, "ranked", n_canary, canary_fields)
    sample_fields = {
        "sampling": asdict(block),
        "seed": run.seed,
        "n_prompts": samples.n_prompts,
        **thinks,
    }

    def ask_block(number: int) -> Question:
        fields = {**sample_fields, "block": number, **decoding.fresh()}
        block_task = replace(task, sampling=block, block=number)
        return Question("samples", block_task, "ranked", samples.n_prompts, fields)

    return Questions(
        answers, repeated if n_canary else None, tuple(map(ask_block, range(n_blocks)))
    )


# Prompts that are tokenised together: few at first, since an engine waits for them.
_READ_FIRST, _READ_AT_ONCE = 32, 256


@dataclass(frozen=True)
class Generate(Task):
    """Answers decoded token by token: greedy ones, or with a `block`, samples of that number.

    With `chat_template` a prompt is a chat: with `as_turns` its own turns, else one of the user;
    `template_kwargs` go to the template, `thinking` asks for a thought first, and each reply begins
    with `prefill`. `is_served`: by a server, which may think unasked.
    """

    sampling: Sampling
    chat_template: bool
    block: int | None = None
    seed: int = 0
    as_turns: bool = False
    template_kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    thinking: Thinking | None = None
    prefill: str | None = None
    is_served: bool = False

    @property
    def answers_per_prompt(self) -> int:
        """The number of answers to a prompt."""
        return self.sampling.n

    @property
    def shares_answers(self) -> bool:
        """Whether prompts of the same text share one answer: greedy answers do, samples do not."""
        return self.block is None

    @property
    def keeps_thoughts(self) -> bool:
        """Whether the table `thoughts` is written."""
        return self.thinking is not None or self.is_served

    def token_ids(self, tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
        """The prompts as the model reads them."""
        return encode(
            tokenizer,
            texts,
            chat_template=self.chat_template,
            as_turns=self.as_turns,
            template_kwargs=self.template_kwargs,
            may_think=self.thinking is not None,
            prefill=self.prefill,
        )

    def warnings(self, tokenizer: Any, text: str) -> list[str]:
        """A sentence for each part of a prompt that the model may misread."""
        return warnings(
            tokenizer,
            text,
            chat_template=self.chat_template,
            as_turns=self.as_turns,
            template_kwargs=self.template_kwargs,
        )

    def answer_groups(
        self, groups: Iterable[pl.DataFrame], engine: Engine, tokenizer: Any
    ) -> Iterator[AnswerRow]:
        """An answer for each row, in order of completion."""
        for answer in engine.answers(self.requests(groups, tokenizer)):
            if isinstance(answer, RefusedRequest):
                yield build_error(answer)
            else:
                yield AnswerRow(
                    self._answer_row(answer),
                    count_answer(answer),
                    thought=self._thought_row(answer),
                )

    def requests(self, groups: Iterable[pl.DataFrame], tokenizer: Any) -> Iterator[Request]:
        """A request for each row."""
        for part, ids in self._tokenise_ahead(groups, tokenizer):
            prompts = zip(part["prompt_id"], part["text"], ids, strict=True)
            for name, text, token_ids in prompts:
                seed = None
                if self.block is not None:
                    # vLLM seeds a block's answers seed, seed + 1, …; 62 bits leave room for them.
                    seed = seeds.key(self.seed, name, self.block) >> 2
                chat = tuple(turns(text)) if self.as_turns else ()
                yield Request(name, token_ids, self.sampling, seed, text, chat, self.thinking)

    def _tokenise_ahead(
        self, groups: Iterable[pl.DataFrame], tokenizer: Any
    ) -> Iterator[tuple[pl.DataFrame, list[list[int]]]]:
        """Slices of the rows with their token ids; the next slice is read ahead."""
        with ThreadPoolExecutor(1, "tokenizer") as reader:
            last = None
            for part in chain.from_iterable(map(slice_rows, groups)):
                future = reader.submit(self.token_ids, tokenizer, part["text"].to_list())
                if last is not None:
                    yield last[0], last[1].result()
                last = part, future
            if last is not None:
                yield last[0], last[1].result()

    def _answer_row(self, answer: Answer) -> dict[str, Any]:
        if self.block is not None:
            texts = [completion.text for completion in answer.completions]
            return {"prompt_id": answer.request_id, "block": self.block, "texts": texts}
        (completion,) = answer.completions
        return {  # `asdict` would take a tenth of the time of a thread that feeds an engine
            "prompt_id": answer.request_id,
            "text": completion.text,
            "n_tokens": completion.n_tokens,
            "logprob": completion.logprob,
            "finish_reason": completion.finish_reason,
        }

    def _thought_row(self, answer: Answer) -> dict[str, Any] | None:
        """The thoughts before the answers to a prompt: a row of `thoughts`."""
        thoughts = [
            completion.thought
            for completion in answer.completions
            if completion.thought is not None
        ]
        if not self.keeps_thoughts or not thoughts:
            return None
        return {
            "prompt_id": answer.request_id,
            "texts": [thought.text for thought in thoughts],
            "n_tokens": [thought.n_tokens for thought in thoughts],
            "ended": [thought.ended for thought in thoughts],
        }


def slice_rows(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Slices of the rows that double in size up to a limit.

    >>> [part.height for part in slice_rows(pl.DataFrame({"a": range(600)}))]
    [32, 32, 64, 128, 256, 88]
    """
    start, n = 0, _READ_FIRST
    while start < rows.height:
        yield rows.slice(start, n)
        start, n = start + n, min(_READ_AT_ONCE, start + n)


def build_error(request: RefusedRequest) -> AnswerRow:
    """The error of a request without an answer, and its cost."""
    tokens = {"prompt_tokens": request.n_prompt_tokens, "output_tokens": request.n_output_tokens}
    error = {
        "prompt_id": request.request_id,
        "reason": request.reason,
        "detail": request.detail,
    }
    return AnswerRow({}, {"prompts": 1, "answers": 0, "cached_tokens": 0, **tokens}, error)


def count_answer(answer: Answer) -> dict[str, float]:
    """The counts of an answered prompt: answers, tokens, and options that a server ignored."""
    n_output = answer.n_output_tokens
    if n_output is None:
        n_output = sum(completion.n_tokens for completion in answer.completions)
    return {
        "prompts": 1,
        "answers": len(answer.completions),
        "prompt_tokens": answer.n_prompt_tokens,
        "cached_tokens": answer.n_cached_tokens,
        "output_tokens": n_output,
        **count_served(answer),
        **{f"{WITHOUT}{name}": 1 for name in answer.without},
        **({REQUESTS: answer.n_requests} if "n" in answer.without else {}),
        **({PROMPTS_REMOVED: answer.n_prompts_removed} if answer.n_prompts_removed else {}),
    }


def count_served(output: Answer | Scored) -> dict[str, float]:
    """The name that a server gives itself, as a count; empty for a local engine."""
    return {f"{SERVED}{output.served}": 1} if output.served else {}


_SCORED = ("n_tokens", "logprob", "entity_n_tokens", "entity_logprob")
_PREDICTED = ("token_id", "token", "probability", "candidate_probabilities")


def score_questions(run: Run) -> Questions:
    """The scores of all texts, and of some in reverse order, which must not change them."""
    decoding, n = run.decoding, run.decoding.canary_prompts
    options = {
        "adds_bos": run.method.ask.adds_bos,
        "is_masked": run.model.architecture == "encoder",
    }
    bos = {"bos": True} if run.method.ask.adds_bos else {}
    fields = {"n_prompts": n, **bos, **decoding.fresh(canary=True)}
    reversed_scores = Score(backwards=True, **options)
    return Questions(
        Question("scores", Score(**options), fields={**bos, **decoding.fresh()}),
        Question("rescored", reversed_scores, "ranked", n, fields) if n else None,
        (),
    )


@dataclass(frozen=True)
class Score(Task):
    """Log-probabilities of whole texts; `backwards` scores the candidates of a group last to first.

    Groups stay together: an engine computes the common prefix of their texts once.
    """

    backwards: bool = False
    adds_bos: bool = False
    is_masked: bool = False

    def token_ids(self, tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
        """The texts as the model reads them."""
        if self.is_masked:
            return masked.encode_texts(tokenizer, texts)
        return super().token_ids(tokenizer, texts)

    def answer_groups(
        self, groups: Iterable[pl.DataFrame], engine: Scorer, tokenizer: Any
    ) -> Iterator[AnswerRow]:
        """The scores of each row, in order of completion."""
        requests = (request for rows in groups for request in self._build_requests(rows, tokenizer))
        for scored in engine.scores(requests):
            if isinstance(scored, RefusedRequest):
                yield build_error(scored)
            else:
                scores = {name: getattr(scored, name) for name in _SCORED}
                answer = AnswerRow.single(
                    scored.request_id,
                    scores,
                    read=scored.n_prompt_tokens,
                    cached=scored.n_cached_tokens,
                    written=scored.n_output_tokens,
                )
                yield answer._replace(counts={**answer.counts, **count_served(scored)})

    def _build_requests(self, rows: pl.DataFrame, tokenizer: Any) -> Iterator[ScoreRequest]:
        items = rows.with_columns(
            item_id="prompt_id",
            setting=pl.col("context_id").str.split(".").list.last(),
            context=pl.lit(""),
            continuation="text",
        )
        for group in items.partition_by("context_id", maintain_order=True):
            ordered = group.reverse() if self.backwards else group
            options = {"adds_bos": self.adds_bos, "is_masked": self.is_masked}
            yield from score_requests(tokenizer, ordered, **options)


def masked_questions(run: Run, facts: Artifact) -> Questions:
    """The predictions for all prompts, and for content-free ones."""
    fresh = run.decoding.fresh()
    all_prompts = Question("masked", Fill(facts), fields=fresh)
    priors = Question("priors", Fill(facts), "content_free", fields=fresh)
    return Questions(all_prompts, None, (priors,))


@dataclass(frozen=True)
class Fill(Task):
    """The most probable token at the mask, and the probabilities of the relation's candidates."""

    facts: Artifact

    shares_answers = True

    def token_ids(self, tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
        """The prompts as the model reads them."""
        return masked.encode(tokenizer, texts)

    def answer_rows(
        self, rows: pl.DataFrame, engine: MaskedLM, tokenizer: Any
    ) -> Iterator[AnswerRow]:
        """A prediction for each row, in order of completion."""
        lengths: dict[str, int] = {}
        for prediction in engine.predictions(self._build_requests(rows, tokenizer, lengths)):
            answer = {name: getattr(prediction, name) for name in _PREDICTED}
            n_read = lengths.pop(prediction.request_id)
            yield AnswerRow.single(prediction.request_id, answer, read=n_read, written=1)

    def _build_requests(
        self, rows: pl.DataFrame, tokenizer: Any, lengths: dict[str, int]
    ) -> Iterator[MaskedRequest]:
        facts = facts_stage.load(self.facts)
        rows = rows.with_columns(relation_id=pl.col("template_id").str.split(".").list.first())
        for prompts in rows.partition_by("relation_id", maintain_order=True):
            tokens = masked.candidates(
                masked.label_tokens(facts.of(prompts["relation_id"][0]), tokenizer)
            )
            candidate_ids = tokens["token_id"].to_list()
            ids = self.token_ids(tokenizer, prompts["text"].to_list())
            for prompt_id, token_ids in zip(prompts["prompt_id"], ids, strict=True):
                lengths[prompt_id] = len(token_ids)
                yield MaskedRequest(prompt_id, token_ids, candidate_ids)
