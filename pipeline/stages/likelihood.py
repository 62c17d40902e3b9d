"""likelihood: what a model is asked about given texts: how likely it finds them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from factsweep.operators.engines.protocol import Refused, Scorer, ScoreRequest, score_requests
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.stages.generate import refused, served
from factsweep.pipeline.stages.question import Answered, Question, Questions, Whole

_SAID = ("n_tokens", "logprob", "entity_n_tokens", "entity_logprob")


def questions(run: Run) -> Questions:
    """The scores of all texts, and of some in another order, which must not change them."""
    decoding, n = run.decoding, run.decoding.canary_prompts
    again = {"n_prompts": n, **decoding.fresh(canary=True)}
    return Questions(
        Question("scores", Score(), fields=decoding.fresh()),
        Question("rescored", Score(backwards=True), "ranked", n, again) if n else None,
        (),
    )


@dataclass(frozen=True)
class Score(Whole):
    """Log-probabilities of whole texts; `backwards` scores the candidates of a group last to first.

    Groups stay together: an engine computes what their texts share once.
    """

    backwards: bool = False

    def answered(
        self, groups: Iterable[pl.DataFrame], engine: Scorer, tokenizer: Any
    ) -> Iterator[Answered]:
        """The scores of each row, in the order in which they are made."""
        requests = (each for rows in groups for each in self._requests(rows, tokenizer))
        for scored in engine.scores(requests):
            if isinstance(scored, Refused):
                yield refused(scored)
            else:
                said = {name: getattr(scored, name) for name in _SAID}
                answer = Answered.single(
                    scored.request_id,
                    said,
                    read=scored.n_prompt_tokens,
                    cached=scored.n_cached_tokens,
                    written=scored.n_output_tokens,
                )
                yield answer._replace(counts={**answer.counts, **served(scored)})

    def _requests(self, rows: pl.DataFrame, tokenizer: Any) -> Iterator[ScoreRequest]:
        items = rows.with_columns(
            item_id="prompt_id",
            setting=pl.col("context_id").str.split(".").list.last(),
            context=pl.lit(""),
            continuation="text",
        )
        for group in items.partition_by("context_id", maintain_order=True):
            yield from score_requests(tokenizer, group.reverse() if self.backwards else group)
