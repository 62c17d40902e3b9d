"""Models of transformers as engines: masked ones fill a mask, causal ones score and compare."""

from typing import Any

from factsweep.operators.engines.kind import EngineKind, Start, cpu_build, installed, precision
from factsweep.operators.engines.transformers.candidates_lm import CandidatesLM
from factsweep.operators.engines.transformers.likelihood import Likelihood
from factsweep.operators.engines.transformers.masked_lm import MaskedLM


def load(start: Start) -> MaskedLM | Likelihood | CandidatesLM:
    """The engine for what is asked, with the model loaded."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

    of: dict[str, Any] = {"revision": start.revision, "trust_remote_code": start.trust_remote_code}
    scores, prefers = start.ability == "score", start.ability == "prefer"
    tokenizer = None if scores else AutoTokenizer.from_pretrained(start.model, **of)
    kind: Any = AutoModelForCausalLM if scores or prefers else AutoModelForMaskedLM
    model = kind.from_pretrained(start.model, dtype=getattr(torch, start.dtype), **of)
    if scores:
        return Likelihood(model, device=start.device)
    engine = CandidatesLM if prefers else MaskedLM
    return engine(model, tokenizer, device=start.device)


KIND = EngineKind(
    name="transformers",
    version=lambda: installed("transformers"),
    load=load,
    abilities=frozenset({"fill", "score", "prefer"}),
    install="install it with pip install transformers",
    gpus="one",
    switches=precision,
    cpu_build=cpu_build,
)
