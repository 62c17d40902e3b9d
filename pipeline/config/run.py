"""Run: all that one command needs to know; Config: what conf/ composes, of which it is made."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from factsweep.operators.engines.kind import EngineKind
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Asked, Method
from factsweep.pipeline.config.benchmark import Benchmark, Matching, Sweep
from factsweep.pipeline.config.cluster import Cluster
from factsweep.pipeline.config.decoding import Decoding
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.recipe import InRecipe, NoNumber, Text

_AnySeed = Annotated[int, Field(ge=0, le=999_999_999_999)]
Seed = InRecipe[_AnySeed]
_WHERE = NoNumber("it says where files are, not what is in them")
Where = Annotated[Text, _WHERE]
Answers = Annotated[Text | None, NoNumber("recipes have the checksum of the file")]
_UNTIL = NoNumber("it says when to stop asking, not what is answered")
MaxCost = Annotated[Annotated[float, Field(gt=0, le=1_000_000_000)] | None, _UNTIL]
BudgetText = Annotated[
    Text | Annotated[int, Field(ge=1, le=1_000_000_000)] | None,
    NoNumber("it says how many of the prompts are asked, not what is answered"),
]
Control = Annotated[
    Text | None,
    NoNumber("it says which answers narrow an estimate, whose tables name their artifact"),
]
Beside = Annotated[
    tuple[Text, ...] | None,
    NoNumber("it says which answers split the variance of an estimate, and changes no answer"),
]
SampleSeed = Annotated[
    _AnySeed | None, NoNumber("it says which of the prompts are asked, not what is answered")
]
TargetText = Annotated[Text | None, _UNTIL]
Log = Annotated[Literal["text", "json"], NoNumber("it says how log lines are written")]


@dataclass(frozen=True)
class Run:
    """All that one command needs to know: one model, one benchmark, one or more settings."""

    model: Model
    benchmark: Benchmark
    settings: InRecipe[tuple[Asked, ...]]
    decoding: Decoding
    matching: Matching
    metrics: InRecipe[Any]
    cluster: Cluster
    seed: Seed
    name: Where
    artifacts: Where
    results: Where
    answers: Answers
    max_cost: MaxCost
    budget: BudgetText
    control: Control
    beside: Beside
    sample_seed: SampleSeed
    target: TargetText
    log: Log

    @property
    def method(self) -> Method:
        """How the benchmark is measured."""
        return METHODS[self.benchmark.method]

    @property
    def engine(self) -> EngineKind:
        """The engine that does what the method asks."""
        return self.decoding.engine_for(self.method.ask.ability.name)


@dataclass(frozen=True)
class Config:
    """What conf/config.yaml composes."""

    model: Model
    benchmark: Benchmark
    prompt: InRecipe[dict[str, Any]]
    decoding: Decoding
    matching: Matching
    metrics: InRecipe[dict[str, Any]]
    cluster: Cluster
    sweep: Sweep
    seed: Seed
    run_name: Annotated[Text | None, _WHERE]
    artifacts: Where
    results: Where
    answers: Answers
    max_cost: MaxCost
    budget: BudgetText
    control: Control
    beside: Beside
    sample_seed: SampleSeed
    target: TargetText
    log: Log
