"""chance: how likely the right answer is behind clozes of other subjects, and of other relations.

KaRR divides by it (operators/metrics/distractors/karr.py). It is asked of one prompt of each pair.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.engines.preference import Preferred, PreferRequest, Preferrer
from factsweep.operators.prompts.chance import chances
from factsweep.operators.prompts.clozes import ending_tokens
from factsweep.operators.prompts.label_trie import Labels, Name
from factsweep.pipeline.stages import knowledge_base
from factsweep.pipeline.stages.asking.question import Answered, Whole
from factsweep.pipeline.stages.expand import relation_of, sets_of
from factsweep.pipeline.storage.artifact import Artifact

_KINDS = ("subjects", "relations")


@dataclass(frozen=True)
class Chance(Whole):
    """The log-probability of the answer's labels behind `n` clozes of either kind that fit."""

    facts: Artifact
    base: Artifact
    prompts: Artifact
    n: int
    seed: int
    limit: int

    def answered(self, rows: pl.DataFrame, engine: Preferrer, tokenizer: Any) -> Iterator[Answered]:
        """The chances of each pair, in the order in which they are complete."""
        asked = dict(self._asked(rows, tokenizer))
        found: dict[str, dict[str, Preferred]] = {name: {} for name in asked}
        for name in (name for name, requests in asked.items() if not requests):
            yield _answered(name, {})
        requests = (each for some in asked.values() for each in some)
        for said in engine.preferences(requests):
            name = said.request_id.rsplit("/", 2)[0]
            found[name][said.request_id] = said
            if len(found[name]) == len(asked[name]):
                yield _answered(name, found.pop(name))

    @cached_property
    def _with_base(self) -> Facts:
        """The facts and their knowledge base, read once for all shards of an engine."""
        return knowledge_base.with_facts(self.facts, self.base)

    def _asked(
        self, rows: pl.DataFrame, tokenizer: Any
    ) -> Iterator[tuple[str, Sequence[PreferRequest]]]:
        sets = sets_of(self.prompts, rows)
        clozes = {
            pair_id: each
            for relation_id in {relation_of(each) for each in rows["template_id"].unique()}
            for pair_id, each in chances(
                self._with_base, relation_id, self.n, seed=self.seed
            ).items()
        }
        ending = ending_tokens(tokenizer, "eos")  # which it is changes nothing
        for row in rows.iter_rows(named=True):
            answer = sets[row["candidates_id"]].filter(entity_id=row["answer_id"])
            names = [Name(row["answer_id"], label) for label in answer["labels"][0]]
            labels = Labels(tokenizer, names)
            requests = (
                PreferRequest(
                    request_id=f"{row['prompt_id']}/{kind}/{number:05d}",
                    token_ids=token_ids,
                    trie=trie,
                    ending=ending,
                    answer_id=row["answer_id"],
                    search="given",
                    n=0,
                )
                for kind in _KINDS
                for number, (token_ids, trie) in enumerate(
                    labels.behind(getattr(clozes[row["pair_id"]], kind))
                )
                if len(token_ids) + max(trie.depth) <= self.limit
            )
            yield row["prompt_id"], list(requests)


def _answered(prompt_id: str, found: Mapping[str, Preferred]) -> Answered:
    values: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    for name in sorted(found):
        values[name.rsplit("/", 2)[1]].append(found[name].answer.open_logprob)
    read = sum(each.n_prompt_tokens for each in found.values())
    tokens = {"prompt_tokens": read, "cached_tokens": 0, "output_tokens": 0}
    return Answered({"prompt_id": prompt_id, **values}, {"prompts": 1, "answers": 1, **tokens})
