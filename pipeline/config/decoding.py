"""How answers are decoded (conf/decoding/)."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from factsweep.operators.engines import ENGINES
from factsweep.operators.engines.engine_kind import Ability, EngineKind
from factsweep.pipeline.config.recipe import (
    Count,
    CountOrNone,
    InRecipe,
    NoNumber,
    NotEmpty,
    Share,
    Text,
)


@dataclass(frozen=True)
class Samples:
    """The sampled answers: `n_answers` for each of `n_prompts` prompts, in blocks of one seed."""

    n_prompts: InRecipe[CountOrNone]
    n_answers: InRecipe[Annotated[int, Field(ge=0, le=1_000_000)]]
    block_size: InRecipe[Annotated[int, Field(ge=1, le=10_000)]]  # vLLM takes at most 16,384
    # vLLM treats 0 as greedy, which cannot be sampled, and raises what lies between to 0.01.
    temperature: InRecipe[Annotated[float, Field(ge=0.01, le=100)]]
    top_p: InRecipe[Annotated[float, Field(gt=0, le=1)]]


@dataclass(frozen=True)
class Baselines:
    """What else is asked: `beams` continuations of clozes, and their `top_tokens` likeliest tokens.

    `others` is how many clozes of other subjects, and of other relations, each answer is read
    behind.
    """

    beams: InRecipe[Annotated[int, Field(ge=0, le=1_000)]]  # 0: neither is asked
    top_tokens: InRecipe[Annotated[int, Field(ge=1, le=10_000)]]
    others: InRecipe[Annotated[int, Field(ge=0, le=10_000)]]  # 0: none


@dataclass(frozen=True)
class Decoding:
    """How answers are decoded (conf/decoding/)."""

    engine: InRecipe[str]
    scorer: InRecipe[str]
    comparer: InRecipe[str]
    max_tokens: InRecipe[CountOrNone]  # 0: what the longest right answer needs
    stop: InRecipe[tuple[NotEmpty, ...]]
    thinking_tokens: Annotated[
        Count, NoNumber("it is in the recipe of what a model is asked that thinks (model.thinking)")
    ]
    samples: Samples
    baselines: Baselines
    canary_prompts: InRecipe[CountOrNone]
    determinism: InRecipe[Literal["default", "batch_invariant"]]
    mix_tensor_parallel: InRecipe[bool]
    max_failed_share: Annotated[
        Share, NoNumber("it says when a run counts as failed, after its answers are complete")
    ]
    max_permutation_difference: Annotated[
        float,
        Field(ge=0, le=1_000_000),
        NoNumber("it says when scores are refused, after they are complete"),
    ]
    repetition: InRecipe[Text | None]
    repeats: InRecipe[Literal["canary", "all"]]

    def engine_for(self, ability: Ability) -> EngineKind:
        """The engine for an ability; the fake one replaces every other."""
        if self.engine == "fake":
            return ENGINES["fake"]
        names = {
            "generate": self.engine,
            "score": self.scorer,
            "prefer": self.comparer,
            "fill": "transformers",
        }
        return ENGINES[names[ability]]

    def fresh(self, *, canary: bool = False) -> dict[str, str]:
        """Extra fields of a recipe that force a fresh decode; without a repetition, none."""
        repeated = self.repetition is not None and (canary or self.repeats == "all")
        return {"repetition": str(self.repetition)} if repeated else {}
