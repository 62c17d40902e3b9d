"""The start of vLLM, and the variables of its environment that may change an answer."""

import json
import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from factsweep.operators.engines.protocol import Start, precision
from factsweep.operators.engines.vllm.reload import EXTENSION

if TYPE_CHECKING:
    from vllm import LLM


def load(start: Start) -> "LLM":
    """VLLM with the model loaded, with prefix caching."""
    if start.device == "cuda":
        # vLLM warms up FlashInfer's sampler at its start, which fails without nvcc. Our requests
        # do not need it, since sampled ones have seeds.
        os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    from vllm import LLM
    from vllm.platforms import current_platform

    options: dict[str, Any] = {"enable_prefix_caching": True, "disable_log_stats": True}
    # A model that also reads images is used for text: no memory is planned for images.
    options["language_model_only"] = True
    if current_platform.is_cpu():
        # Prefixes are shared in blocks; the default of 128 tokens is longer than most prompts.
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
    if start.adapter is not None:
        options |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": _rank(start.adapter)}
    options |= {"worker_extension_cls": EXTENSION, **start.arguments}
    return LLM(
        model=start.model,
        revision=start.revision,
        tokenizer_revision=start.revision,
        dtype=start.dtype,
        max_model_len=start.max_model_len,
        tensor_parallel_size=start.tensor_parallel,
        pipeline_parallel_size=start.pipeline_parallel,
        trust_remote_code=start.trust_remote_code,
        seed=0,
        gpu_memory_utilization=start.gpu_memory_utilization,
        **options,
    )


def _rank(adapter: Path) -> int:
    from vllm.config.lora import MaxLoRARanks

    config = json.loads((adapter / "adapter_config.json").read_bytes())
    ranks = [config["r"], *config.get("rank_pattern", {}).values()]
    return int(min(rank for rank in get_args(MaxLoRARanks) if rank >= max(ranks)))


# Why some of vLLM's environment variables change no answer; any other may change one.
_WHY = (
    ("decoding.determinism sets it", "VLLM_BATCH_INVARIANT"),
    ("cluster.cpu_kvcache_gib sets it", "VLLM_CPU_KVCACHE_SPACE"),
    ("which cores compute", "VLLM_CPU_OMP_THREADS_BIND VLLM_CPU_NUM_OF_RESERVED_CPU"),
    ("which processes there are", "VLLM_ENABLE_V1_MULTIPROCESSING VLLM_WORKER_MULTIPROC_METHOD"),
    ("their names, given by vLLM itself", "VLLM_DIST_IDENT VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME"),
    ("their concurrency; vLLM sets it itself on a CPU", "VLLM_DISABLE_SHARED_EXPERTS_STREAM"),
    ("how their memory is laid out; likewise", "VLLM_SSM_CONV_STATE_LAYOUT"),
    ("how their kernels are started; likewise", "VLLM_USE_BREAKABLE_CUDAGRAPH"),
    ("how they find each other", "VLLM_HOST_IP VLLM_LOOPBACK_IP VLLM_PORT VLLM_RPC_BASE_PATH"),
    ("how long they wait", "VLLM_*_TIMEOUT*"),
    ("output", "VLLM_LOG* VLLM_DISABLE_LOG_LOGO"),
    ("statistics for its makers", "VLLM_*USAGE* VLLM_DO_NOT_TRACK"),
    ("a secret of its server, which is not used here", "VLLM_API_KEY"),
    ("where files lie", "VLLM_CACHE_ROOT VLLM_CONFIG_ROOT VLLM_ASSETS_CACHE"),
    ("the name of an image", "VLLM_BUILD_* VLLM_IMAGE_TAG"),
    ("which build is installed, which the engine's version names", "VLLM_TARGET_DEVICE"),
)
NO_ANSWER = tuple(" ".join(names for _, names in _WHY).split())


def switches(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of vLLM and of its libraries that are set and may change an answer.

    >>> switches({"VLLM_LOGGING_LEVEL": "DEBUG", "VLLM_MLA_DISABLE": "1", "HOME": "/root"})
    {'VLLM_MLA_DISABLE': '1'}
    """
    of_vllm = {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith("VLLM_") and not any(fnmatchcase(name, glob) for glob in NO_ANSWER)
    }
    return of_vllm | precision(environment)
