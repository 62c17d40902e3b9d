"""Models of transformers as engines: masked ones fill a mask, causal ones score and compare."""

from typing import Any

from factsweep.operators.engines.protocol import (
    EngineKind,
    Start,
    cpu_build,
    find_installed,
    precision,
)
from factsweep.operators.engines.transformers.batched_lm import CandidatesLM, Likelihood, MaskedLM


def load(start: Start) -> MaskedLM | Likelihood | CandidatesLM:
    """The engine for the ability, with the model loaded."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

    if start.ability == "score":
        return Likelihood(_load_pretrained(AutoModelForCausalLM, start), device=start.device)
    tokenizer = AutoTokenizer.from_pretrained(
        start.model, revision=start.revision, trust_remote_code=start.trust_remote_code
    )
    if start.ability == "prefer":
        return CandidatesLM(
            _load_pretrained(AutoModelForCausalLM, start), tokenizer, device=start.device
        )
    return MaskedLM(_load_pretrained(AutoModelForMaskedLM, start), tokenizer, device=start.device)


def _load_pretrained(kind: Any, start: Start) -> Any:
    import torch

    return kind.from_pretrained(
        start.model,
        revision=start.revision,
        dtype=getattr(torch, start.dtype),
        trust_remote_code=start.trust_remote_code,
    )


KIND = EngineKind(
    name="transformers",
    version=lambda: find_installed("transformers"),
    load=load,
    abilities=frozenset({"fill", "score", "prefer"}),
    install="install it with pip install transformers",
    gpus="one",
    switches=precision,
    cpu_build=cpu_build,
)
