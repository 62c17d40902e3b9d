"""admit: prompts × a model's tokenizer → error rows of the prompts that do not fit its context."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock, Semaphore

import polars as pl

from factsweep.operators.methods.method import PREFER, Ability
from factsweep.operators.prompts.estimate import ESTIMATE
from factsweep.operators.prompts.expansion import longest_text
from factsweep.operators.prompts.tokens import too_long
from factsweep.pipeline.inputs import models
from factsweep.pipeline.inputs.models import Weights
from factsweep.pipeline.machine.software import versions
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.question import Task, check_reading
from factsweep.pipeline.stages.step import ShardedStage, Sharing
from factsweep.pipeline.storage.artifact import Artifact, Recipe

# 2: prompts are measured as the ability puts them to the model, masks and all.
VERSION = 2
_IN_MEMORY = 4  # shards of a far store that are read and tokenised at once


@dataclass(frozen=True)
class Admit(ShardedStage):
    """Finds the prompts of more than `limit` tokens, as `task` puts them to the model."""

    prompts: Artifact
    weights: Weights
    ability: Ability
    task: Task
    limit: int

    @property
    def recipe(self) -> Recipe:
        """The prompts, the tokenizer and the room for them."""
        model = self.weights.model
        tokenizer = {"tokenizer": model.id, **self.weights.fields}
        if model.source == "endpoint":  # an estimate stands in for an unknown tokenizer
            tokenizer = {"tokenizer": model.tokenizer or ESTIMATE, **self.weights.content}
        chat = {
            "template_kwargs": model.template_told,
            "chat_template_text": model.chat_template_text,
            "prefill": model.prefill,
        }
        fields = {
            **tokenizer,
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
        n_by_shard = self.prompts.rows("prompts")
        published = set(artifact.list_published("errors"))
        missing = {shard: n for shard, n in n_by_shard.items() if shard not in published}
        sharing(partial(self._admit, artifact), missing)
        artifact.finish(["errors"], expected_shards={"errors": n_by_shard}, made_of=[self.prompts])

    def _admit(self, artifact: Artifact, shards: Sequence[str]) -> None:
        tokenizer, tokenizing = models.tokenizer(self.weights), Lock()
        loaded = Semaphore(_IN_MEMORY)

        def admit(shard: str) -> None:
            with loaded:
                rows = with_text(self.prompts, "prompts", shard)
                # A cloze is read with the longest label of its candidates.
                is_compared = self.ability == PREFER
                sets = self.prompts.read("candidate_sets", shard) if is_compared else None
                texts = longest_text(rows, sets).to_list()
                with tokenizing:
                    check_reading(self.task, tokenizer, rows)
                    lengths = too_long(
                        tokenizer,
                        texts,
                        limit=self.limit,
                        token_ids=self.task.token_ids,
                        adds_text=self.weights.model.chat_template,
                    )
            details = [f"{length} tokens, room for {self.limit}" for length in lengths.values()]
            errors = pl.select(
                prompt_id=rows["prompt_id"].gather(list(lengths)),
                detail=pl.Series(details, dtype=pl.String),
            ).with_columns(stage=pl.lit("admit"), reason=pl.lit("prompt_too_long"))
            artifact.publish("errors", shard, errors)

        artifact.store.each(admit, shards)
