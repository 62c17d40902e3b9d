"""Engines: what answers prompts. One small protocol, one module for each implementation."""

from collections.abc import Mapping

from factsweep.operators.engines import fake, transformers
from factsweep.operators.engines.endpoint import endpoint
from factsweep.operators.engines.kind import EngineKind
from factsweep.operators.engines.vllm import engine as vllm

ENGINES: Mapping[str, EngineKind] = {
    kind.name: kind for kind in (vllm.KIND, transformers.KIND, endpoint.KIND, fake.KIND)
}
