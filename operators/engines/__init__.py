"""Engines: what answers prompts. One small protocol, one module for each implementation."""

from collections.abc import Mapping

from factsweep.operators.engines import endpoint, fake, transformers, vllm
from factsweep.operators.engines.protocol import EngineKind

ENGINES: Mapping[str, EngineKind] = {
    kind.name: kind for kind in (vllm.KIND, transformers.KIND, endpoint.KIND, fake.KIND)
}
