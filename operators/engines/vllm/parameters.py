"""What vLLM is told of a request: how to sample, and which probabilities to name."""

from typing import TYPE_CHECKING, Any

from factsweep.operators.engines.protocol import Request

if TYPE_CHECKING:
    from vllm import SamplingParams


def of_request(request: Request, **other: Any) -> "SamplingParams":
    """As a request says; `other` takes the place of what it says."""
    sampling = request.sampling
    asked: dict[str, Any] = {
        "n": sampling.n,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": request.seed,
        "max_tokens": sampling.max_tokens,
        "stop": list(sampling.stop),
        "logprobs": 0 if sampling.logprobs else None,
    }
    return _whole(**{**asked, **other})


def of_probabilities(**named: Any) -> "SamplingParams":
    """One token, vLLM's minimum, of which nothing counts but the log-probabilities it names."""
    return _whole(temperature=0.0, max_tokens=1, detokenize=False, **named)


def _whole(**asked: Any) -> "SamplingParams":
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **asked)
