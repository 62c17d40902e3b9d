"""Questions about the greedy answer to a prompt: whether it is right, and how sure the model is.

The question stands behind the prompt and its answer. The answer is decoded again in the same call,
so that no engine waits for the answers of another. It is stored with the reply: matching leaves out
replies about an answer that changed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import polars as pl

from factsweep.operators.engines.protocol import Answer, RefusedRequest, Sampling, ScoreRequest
from factsweep.operators.prompts.chat import messages
from factsweep.operators.prompts.tokens import encode, n_shared
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.stages.generate import Generate, build_error, count_answer, slice_rows
from factsweep.pipeline.stages.question import AnswerRow, Further, Question, Questions, Task


def add_questions(run: Run, questions: Questions) -> Questions:
    """Add the questions of `decoding.confidence.ask`, about the answers of the canary."""
    canary, greedy = questions.repeated_question, questions.answers.task
    if canary is None or not isinstance(greedy, Generate):
        return questions
    options, most_tokens = run.decoding.confidence, run.model.max_model_len
    sampling = Sampling(max_tokens=options.max_tokens, stop=())
    words = (options.true, options.false)
    truth = AskTruth(greedy, options.p_true, most_tokens, words)
    number = AskNumber(greedy, options.verbalised, most_tokens, sampling)
    tasks: dict[str, tuple[Task, dict[str, Any]]] = {
        "p_true": (truth, {"words": words}),
        "verbalised": (number, {"reply": asdict(sampling)}),
    }
    extra_questions = list(questions.extra_questions)
    for kind in options.ask:
        task, own_fields = tasks[kind]
        fields = {**canary.fields, "asking": getattr(options, kind), **own_fields}
        extra_questions.append(Question(kind, task, "ranked", canary.n_ranked, fields))
    return questions._replace(extra_questions=tuple(extra_questions))


@dataclass(frozen=True)
class AskAboutAnswer(Task):
    """A question (`asking`) behind each prompt and its greedy answer.

    `most_tokens` is the length of the model's context.
    """

    greedy: Generate
    asking: str
    most_tokens: int

    @property
    def shares_answers(self) -> bool:
        """Whether prompts of the same text share one answer."""
        return self.greedy.shares_answers

    @property
    def _most_tokens_behind(self) -> int:
        """The most tokens of the answer and the question behind a prompt: bytes of the question."""
        return self.greedy.sampling.max_tokens + len(self.asking.encode())

    def token_ids(self, tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
        """The prompts as the model reads them."""
        return self.greedy.token_ids(tokenizer, texts)

    def warnings(self, tokenizer: Any, text: str) -> list[str]:
        """A sentence for each part of a prompt that the model may misread."""
        return self.greedy.warnings(tokenizer, text)

    def answer_rows(self, rows: pl.DataFrame, engine: Any, tokenizer: Any) -> Iterator[AnswerRow]:
        """A reply for each row, in order of completion; a few hundred rows at a time."""
        for part in slice_rows(rows):
            text_by_id = dict(part.select("prompt_id", "text").iter_rows())
            answers: dict[str, Answer] = {}
            for answer in engine.answers(self.greedy.requests([part], tokenizer)):
                if isinstance(answer, RefusedRequest):
                    yield build_error(answer)
                else:
                    answers[answer.request_id] = answer
            texts = {name: self._join_question(text_by_id[name], answers[name]) for name in answers}
            yield from self._ask_replies(texts, answers, engine, tokenizer)

    def _join_question(self, text: str, answer: Answer) -> str:
        answer_text = answer.completions[0].text
        if not self.greedy.chat_template:
            return f"{text}{answer_text}\n{self.asking}"
        turns = [
            *messages(text, as_turns=self.greedy.as_turns),
            {"role": "assistant", "content": f"{self.greedy.prefill or ''}{answer_text}"},
            {"role": "user", "content": self.asking},
        ]
        return "\n".join(map(json.dumps, turns))

    def _ask_replies(
        self, texts: Mapping[str, str], answers: Mapping[str, Answer], engine: Any, tokenizer: Any
    ) -> Iterator[AnswerRow]:
        raise NotImplementedError

    def _build_room_error(self, answer: Answer, n_tokens: int, n_written: int) -> AnswerRow:
        detail = f"{n_tokens} tokens, room for {self.most_tokens - n_written}"
        counts = count_answer(answer)
        tokens = (int(counts["prompt_tokens"]), int(counts["output_tokens"]))
        return build_error(RefusedRequest(answer.request_id, "prompt_too_long", detail, *tokens))


def _join(answer: Answer, reply: Mapping[str, Any], read: int, cached: int, out: int) -> AnswerRow:
    counts = dict(count_answer(answer))
    for name, n in (("prompt_tokens", read), ("cached_tokens", cached), ("output_tokens", out)):
        counts[name] += n
    text = answer.completions[0].text
    return AnswerRow({"prompt_id": answer.request_id, "text": text, **reply}, counts)


@dataclass(frozen=True)
class AskTruth(AskAboutAnswer):
    """The log-probabilities of two words behind the question: it is true, and it is false."""

    words: tuple[str, str]

    @property
    def further(self) -> Further:
        """Each word is scored; a server writes a token behind each."""
        n = len(self.words)
        return Further(n, n * self._most_tokens_behind + len("".join(self.words).encode()), n)

    def _ask_replies(
        self, texts: Mapping[str, str], answers: Mapping[str, Answer], engine: Any, tokenizer: Any
    ) -> Iterator[AnswerRow]:
        requests = []
        for name, encoded in self._encode_words(texts, tokenizer).items():
            n_tokens = max(len(token_ids) for token_ids, _ in encoded)
            if n_tokens >= self.most_tokens:  # an engine may need room for a token behind it
                yield self._build_room_error(answers[name], n_tokens, 1)
                continue
            requests += [
                ScoreRequest(f"{name}\x1f{place}", token_ids, name, (start, len(token_ids)))
                for place, (token_ids, start) in enumerate(encoded)
            ]
        scores: dict[str, dict[int, Any]] = {}
        for scored in engine.scores(iter(requests)):
            name, _, place = scored.request_id.rpartition("\x1f")
            of_prompt = scores.setdefault(name, {})
            of_prompt[int(place)] = scored
            if len(of_prompt) < len(self.words):
                continue
            true, false = (of_prompt[i] for i in range(len(self.words)))
            if refusal := next((s for s in (true, false) if isinstance(s, RefusedRequest)), None):
                yield build_error(replace(refusal, request_id=name))
                continue
            reply = {"logprob_true": true.entity_logprob, "logprob_false": false.entity_logprob}
            counts = ("n_prompt_tokens", "n_cached_tokens", "n_output_tokens")
            tokens = (getattr(true, count) + getattr(false, count) for count in counts)
            yield _join(answers[name], reply, *tokens)

    def _encode_words(
        self, texts: Mapping[str, str], tokenizer: Any
    ) -> dict[str, list[tuple[list[int], int]]]:
        """The tokens of each question with each word, and where the word begins in them."""
        encoded = [self._encode([*texts.values()], word, tokenizer) for word in ("", *self.words)]
        return {
            name: [(token_ids, n_shared([bare, token_ids])) for token_ids in with_words]
            for name, bare, *with_words in zip(texts, *encoded, strict=True)
        }

    def _encode(self, texts: list[str], word: str, tokenizer: Any) -> list[list[int]]:
        if not self.greedy.chat_template:
            return encode(tokenizer, [f"{text}{word}" for text in texts])
        prefill = f"{self.greedy.prefill or ''}{word.strip()}" or None
        return replace(self.greedy, as_turns=True, prefill=prefill).token_ids(tokenizer, texts)


@dataclass(frozen=True)
class AskNumber(AskAboutAnswer):
    """The text that the model writes behind the question."""

    sampling: Sampling

    @property
    def further(self) -> Further:
        """One reply."""
        return Further(1, self._most_tokens_behind, self.sampling.max_tokens)

    def _ask_replies(
        self, texts: Mapping[str, str], answers: Mapping[str, Answer], engine: Any, tokenizer: Any
    ) -> Iterator[AnswerRow]:
        rows = pl.DataFrame({"prompt_id": list(texts), "text": list(texts.values())})
        task = replace(self.greedy, sampling=self.sampling, as_turns=self.greedy.chat_template)
        requests, room = [], self.most_tokens - self.sampling.max_tokens
        for request in task.requests([rows], tokenizer):
            if len(request.token_ids) > room:
                answer, n_tokens = answers[request.request_id], len(request.token_ids)
                yield self._build_room_error(answer, n_tokens, self.sampling.max_tokens)
            else:
                requests.append(request)
        for reply in engine.answers(iter(requests)):
            if isinstance(reply, RefusedRequest):
                yield build_error(reply)
                continue
            counts = count_answer(reply)
            tokens = (counts[f"{name}_tokens"] for name in ("prompt", "cached", "output"))
            answer, text = answers[reply.request_id], {"reply": reply.completions[0].text}
            yield _join(answer, text, *map(int, tokens))
