"""fill: what a masked model is asked: which token stands at the mask, and how likely it is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from factsweep.operators.engines.protocol import MaskedRequest
from factsweep.operators.engines.transformers.batched_lm import MaskedLM
from factsweep.operators.prompts.masked import candidates, encode, label_tokens
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.question import Answered, Question, Questions, Whole
from factsweep.pipeline.storage.artifact import Artifact

_SAID = ("token_id", "token", "probability", "candidate_probabilities")


def questions(run: Run, facts: Artifact) -> Questions:
    """The predictions for all prompts, and for those that name no subject."""
    fresh = run.decoding.fresh()
    masked = Question("masked", Fill(facts), fields=fresh)
    priors = Question("priors", Fill(facts), "content_free", fields=fresh)
    return Questions(masked, None, (priors,))


@dataclass(frozen=True)
class Fill(Whole):
    """The most probable token at the mask, and the probabilities of the relation's candidates."""

    facts: Artifact

    shares_answers = True

    def token_ids(self, tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
        """The prompts as the model reads them."""
        return encode(tokenizer, texts)

    def answered_of(
        self, rows: pl.DataFrame, engine: MaskedLM, tokenizer: Any
    ) -> Iterator[Answered]:
        """A prediction for each row, in the order in which they are made."""
        lengths: dict[str, int] = {}
        for found in engine.predictions(self._requests(rows, tokenizer, lengths)):
            said = {name: getattr(found, name) for name in _SAID}
            read = lengths.pop(found.request_id)
            yield Answered.single(found.request_id, said, read=read, written=1)

    def _requests(
        self, rows: pl.DataFrame, tokenizer: Any, lengths: dict[str, int]
    ) -> Iterator[MaskedRequest]:
        facts = facts_stage.load(self.facts)
        asked = rows.with_columns(relation_id=pl.col("template_id").str.split(".").list.first())
        for mine in asked.partition_by("relation_id", maintain_order=True):
            tokens = candidates(label_tokens(facts.of(mine["relation_id"][0]), tokenizer))
            candidate_ids = tokens["token_id"].to_list()
            ids = self.token_ids(tokenizer, mine["text"].to_list())
            for prompt_id, token_ids in zip(mine["prompt_id"], ids, strict=True):
                lengths[prompt_id] = len(token_ids)
                yield MaskedRequest(prompt_id, token_ids, candidate_ids)
