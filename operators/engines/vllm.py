"""vLLM as an engine: requests are fed while others run, so that no batch ever drains."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from operators.engines.protocol import Answer, Completion, Request, Sampling

if TYPE_CHECKING:
    from vllm import LLM, RequestOutput, SamplingParams


@dataclass(frozen=True)
class VllmSettings:
    """What vLLM is started with; `model` is a folder, or a hub id at `revision`."""

    model: str
    revision: str | None
    dtype: str
    max_model_len: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    gpu_memory_utilization: float = 0.9
    trust_remote_code: bool = False
    seed: int = 0


class VllmEngine:
    """vLLM with prefix caching; asks for nothing that is not stored."""

    def __init__(self, settings: VllmSettings) -> None:
        self._llm = _load(settings)
        scheduler = self._llm.llm_engine.vllm_config.scheduler_config
        # Twice what runs at once: the scheduler always finds the next request waiting.
        self._capacity = 2 * int(scheduler.max_num_seqs)
        self._ids = count()

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """One answer for each request, in the order they are finished."""
        running: dict[str, Request] = {}
        try:
            yield from self._answers(iter(requests), running)
        finally:
            # Where the caller stops early, they would be answered in the next call.
            self._llm.llm_engine.abort_request(list(running))

    def _answers(self, waiting: Iterator[Request], running: dict[str, Request]) -> Iterator[Answer]:
        engine = self._llm.llm_engine
        load, exhausted = 0, False
        while running or not exhausted:
            while load < self._capacity and not exhausted:
                request = next(waiting, None)
                if request is None:
                    exhausted = True
                    break
                # vLLM wants ids that it has never seen; a prompt may be asked again (samples).
                running[str(number := next(self._ids))] = request
                prompt = {"prompt_token_ids": request.token_ids}
                engine.add_request(str(number), prompt, _parameters(request))
                load += request.sampling.n
            for output in engine.step() if running else ():
                if output.finished:
                    request = running.pop(output.request_id)
                    load -= request.sampling.n
                    yield _answer(request, output)


def _load(settings: VllmSettings) -> "LLM":
    from vllm import LLM
    from vllm.platforms import current_platform

    options: dict[str, Any] = {"gpu_memory_utilization": settings.gpu_memory_utilization}
    if current_platform.is_cpu():
        # Blocks of 32 tokens, since a block is what prefixes are shared in: the default of 128 is
        # longer than most of our prompts and shares nothing.
        options = {"enforce_eager": True, "block_size": 32}
    if settings.pipeline_parallel > 1:
        # Over several nodes: in the placement group of Ray's that this process is in.
        options["distributed_executor_backend"] = "ray"
    return LLM(
        model=settings.model,
        revision=settings.revision,
        tokenizer_revision=settings.revision,
        dtype=settings.dtype,
        max_model_len=settings.max_model_len,
        tensor_parallel_size=settings.tensor_parallel,
        pipeline_parallel_size=settings.pipeline_parallel,
        trust_remote_code=settings.trust_remote_code,
        seed=settings.seed,
        enable_prefix_caching=True,
        disable_log_stats=True,
        **options,
    )


def _parameters(request: Request) -> "SamplingParams":
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    sampling: Sampling = request.sampling
    return SamplingParams(
        n=sampling.n,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        seed=request.seed,
        max_tokens=sampling.max_tokens,
        stop=list(sampling.stop),
        logprobs=0 if sampling.logprobs else None,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _answer(request: Request, output: "RequestOutput") -> Answer:
    return Answer(
        request_id=request.request_id,
        completions=tuple(_completion(each) for each in output.outputs),
        n_prompt_tokens=len(request.token_ids),
        n_cached_tokens=output.num_cached_tokens or 0,
    )


def _completion(output: Any) -> Completion:
    length = len(output.token_ids) - (output.finish_reason == "stop")
    logprob = None
    if output.logprobs is not None:
        pairs = zip(output.token_ids[:length], output.logprobs[:length], strict=True)
        logprob = sum(of_token[token].logprob for token, of_token in pairs)
    return Completion(output.text, length, logprob, str(output.finish_reason))
