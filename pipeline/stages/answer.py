"""answer: what determines the answers of an engine; the pool of engines makes them (`decode`)."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from factsweep.operators.methods.ability import FILL, PREFER, SCORE, Ability
from factsweep.operators.methods.method import Asked
from factsweep.pipeline.config.decoding import Decoding
from factsweep.pipeline.config.recipe import in_recipe
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.inputs.models import Weights
from factsweep.pipeline.machine.software import versions
from factsweep.pipeline.stages import generate, prefer
from factsweep.pipeline.stages.question import Question, Questions
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import Recipe

# 2: the recipes of all abilities hold the same fields of model and engine.
# 3: every byte of the weights counts, and the tokenizers' version.
VERSION = 3
# Fields of a model that say how it is loaded.
LOADED = (
    *("dtype", "gguf_file", "tensor_parallel", "pipeline_parallel", "trust_remote_code"),
    *("tokenizer", "content"),  # they count tokens, and are part of the recipe of `admitted`
)


@dataclass(frozen=True)
class Answer:
    """What an engine answers to a question about a setting's prompts."""

    question: Question
    admitted: Artifact
    weights: Weights
    decoding: Decoding
    ability: Ability

    @property
    def recipe(self) -> Recipe:
        """The prompts, the model, the engine, and what is asked."""
        # Environment variables that may change an answer, if any are set.
        switches = self.decoding.engine_for(self.ability.name).switches(os.environ)
        fields = {
            "model": _model(self.weights, self.decoding),
            "software": software(self.ability, self.decoding),
            "determinism": self.decoding.determinism,
            **({"environment": switches} if switches else {}),
            **self.question.fields,
        }
        inputs = {"admitted": self.admitted.fingerprint}
        return Recipe(self.question.table, VERSION, fields, inputs)


def questions(
    run: Run, setting: Asked, sources: Sequence[Artifact], prompts: Artifact
) -> Questions:
    """All that an engine is asked in a setting of a run; `sources` is what prompts are made of."""
    ability = run.method.ask.ability
    if ability == FILL:
        return generate.masked_questions(run, sources[0])
    if ability == PREFER:
        return prefer.questions(run, setting, sources, prompts)
    return generate.score_questions(run) if ability == SCORE else generate.questions(run, setting)


def _model(weights: Weights, decoding: Decoding) -> dict[str, Any]:
    found = {**in_recipe(weights.model), **weights.fields}
    if weights.model.source == "endpoint":  # how a server loads it, only the server knows
        return {name: value for name, value in found.items() if name not in LOADED}
    return found | ({"tensor_parallel": "any"} if decoding.mix_tensor_parallel else {})


def software(ability: Ability, decoding: Decoding) -> dict[str, str]:
    """The engine that answers, and what it computes with, each with its version on this machine."""
    engine = decoding.engine_for(ability.name)
    if engine.gpus == "none":  # nothing is computed here
        return {"engine": engine.version()}
    return {"engine": engine.version(), **versions("torch", "transformers", "tokenizers")}
