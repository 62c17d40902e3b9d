"""admit: prompts × a model's tokenizer → the prompts that do not fit its context, as error rows.

They are found here, where a sentence says so, and not on the GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock, Semaphore
from typing import Any

import polars as pl

from factsweep.operators.methods.ability import PREFER, Ability
from factsweep.operators.prompts.estimate import ESTIMATE
from factsweep.operators.prompts.expansion import longest_text
from factsweep.operators.prompts.tokens import too_long
from factsweep.pipeline.inputs import models
from factsweep.pipeline.inputs.models import Weights
from factsweep.pipeline.machine.software import versions
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.question import Task, check_reading
from factsweep.pipeline.stages.stage import Shared, Sharing
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import Recipe

# 2: prompts are measured as the ability puts them to the model, masks and all.
VERSION = 2
_IN_MEMORY = 4  # shards of a far store that are read and tokenised meanwhile


def _tokenizer(weights: Weights) -> dict[str, Any]:
    """What counts the tokens; an estimate, where a server's tokenizer is not known."""
    if weights.model.source != "endpoint":
        return {"tokenizer": weights.model.id, **weights.fields}
    return {"tokenizer": weights.model.tokenizer or ESTIMATE, **weights.content}


@dataclass(frozen=True)
class Admit(Shared):
    """Finds the prompts of more than `limit` tokens, as `task` puts them to the model."""

    prompts: Artifact
    weights: Weights
    ability: Ability
    task: Task
    limit: int

    @property
    def recipe(self) -> Recipe:
        """The prompts, the tokenizer and the room that is left for them."""
        model = self.weights.model
        chat = {
            "template_kwargs": model.template_told,
            "chat_template_text": model.chat_template_text,
            "prefill": model.prefill,
        }
        fields = {
            **_tokenizer(self.weights),
            "software": versions("transformers", "tokenizers"),
            "chat_template": model.chat_template,
            **{name: value for name, value in chat.items() if value is not None},
            "trust_remote_code": model.trust_remote_code,
            "ability": self.ability.name,
            "limit": self.limit,
        }
        return Recipe("admitted", VERSION, fields, {"prompts": self.prompts.fingerprint})

    def make_shared(self, artifact: Artifact, sharing: Sharing) -> None:
        """Publish an error row for each prompt that leaves no room for an answer."""
        artifact.begin()
        shards, there = self.prompts.rows("prompts"), set(artifact.published("errors"))
        missing = {shard: rows for shard, rows in shards.items() if shard not in there}
        sharing(partial(self._admit, artifact), missing)
        artifact.finish(["errors"], expected_shards={"errors": shards}, made_of=[self.prompts])

    def _admit(self, artifact: Artifact, shards: Sequence[str]) -> None:
        tokenizer, one, few = models.tokenizer(self.weights), Lock(), Semaphore(_IN_MEMORY)

        def admit(shard: str) -> None:
            with few:
                rows = with_text(self.prompts, "prompts", shard)
                # A cloze is read with the longest label of its candidates.
                compared = self.ability == PREFER
                sets = self.prompts.read("candidate_sets", shard) if compared else None
                asked = longest_text(rows, sets).to_list()
                with one:
                    check_reading(self.task, tokenizer, rows)
                    found = too_long(
                        tokenizer,
                        asked,
                        limit=self.limit,
                        token_ids=self.task.token_ids,
                        adds_text=self.weights.model.chat_template,
                    )
                details = [f"{length} tokens, room for {self.limit}" for length in found.values()]
                ids = rows["prompt_id"].gather(list(found))
                texts = pl.Series(details, dtype=pl.String)
                errors = pl.DataFrame({"prompt_id": ids, "detail": texts})
            named = errors.with_columns(stage=pl.lit("admit"), reason=pl.lit("prompt_too_long"))
            artifact.publish("errors", shard, named)

        artifact.store.each(admit, shards)
