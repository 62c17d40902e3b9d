"""Models of transformers as engines: masked ones fill a mask, causal ones score texts."""

from typing import Any

from operators.engines.kind import EngineKind, Start, installed
from operators.engines.likelihood import Likelihood
from operators.engines.masked_lm import MaskedLM


def load(start: Start) -> MaskedLM | Likelihood:
    """The engine for what is asked, with the model loaded."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

    if start.ability == "score":
        return Likelihood(_pretrained(AutoModelForCausalLM, start), device=start.device)
    tokenizer = AutoTokenizer.from_pretrained(
        start.model, revision=start.revision, trust_remote_code=start.trust_remote_code
    )
    return MaskedLM(_pretrained(AutoModelForMaskedLM, start), tokenizer, device=start.device)


def _pretrained(kind: Any, start: Start) -> Any:
    import torch

    return kind.from_pretrained(
        start.model,
        revision=start.revision,
        dtype=getattr(torch, start.dtype),
        trust_remote_code=start.trust_remote_code,
    )


KIND = EngineKind(
    name="transformers",
    version=lambda: installed("transformers"),
    load=load,
    abilities=frozenset({"fill", "score"}),
    install="install it with pip install transformers",
    gpus="one",
)
