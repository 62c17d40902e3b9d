"""Run: the settings of one command; Config: the composition of conf/ that it is built from."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from factsweep.operators.engines.engine_kind import EngineKind
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Asked, Method
from factsweep.pipeline.config.benchmark import Benchmark, Matching, Sweep
from factsweep.pipeline.config.cluster import Cluster
from factsweep.pipeline.config.decoding import Decoding
from factsweep.pipeline.config.folders import OWN_FACTS, below
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.recipe import InRecipe, NoNumber, Text

_AnySeed = Annotated[int, Field(ge=0, le=999_999_999_999)]
_WHERE = NoNumber("it says where files are, not what is in them")
_UNTIL = NoNumber("it says when to stop asking, not what is answered")


@dataclass(frozen=True)
class _Given:
    """What is given for a run as it stands in conf/."""

    model: Model
    benchmark: Benchmark
    decoding: Decoding
    matching: Matching
    cluster: Cluster
    seed: InRecipe[_AnySeed]
    artifacts: Annotated[Text, _WHERE]
    results: Annotated[Text, _WHERE]
    answers: Annotated[Text | None, NoNumber("recipes have the checksum of the file")]
    max_cost: Annotated[Annotated[float, Field(gt=0, le=1_000_000_000)] | None, _UNTIL]
    budget: Annotated[
        Text | Annotated[int, Field(ge=1, le=1_000_000_000)] | None,
        NoNumber("it says how many of the prompts are asked, not what is answered"),
    ]
    control: Annotated[
        Text | None,
        NoNumber("it says which answers narrow an estimate, whose tables name their artifact"),
    ]
    sample_seed: Annotated[
        _AnySeed | None, NoNumber("it says which of the prompts are asked, not what is answered")
    ]
    target: Annotated[Text | None, _UNTIL]


@dataclass(frozen=True)
class Run(_Given):
    """All that one command needs to know: one model, one benchmark, one or more settings."""

    settings: InRecipe[tuple[Asked, ...]]
    metrics: InRecipe[Any]
    name: Annotated[Text, _WHERE]

    @property
    def folder(self) -> str:
        """The path or URL of the folder of its results."""
        return below(self.results, self.name)

    @property
    def method(self) -> Method:
        """How the benchmark is measured."""
        return METHODS[self.benchmark.method]

    @property
    def engine(self) -> EngineKind:
        """The engine for the method's ability."""
        return self.decoding.engine_for(self.method.ask.ability.name)

    @property
    def table(self) -> str | None:
        """How a table of the user's own is measured, in words; null: the facts are a set's."""
        if self.benchmark.data != OWN_FACTS or self.benchmark.path is None:
            return None
        settings = ", ".join(setting.name for setting in self.settings)
        samples = self.decoding.samples
        n_samples = samples.n_answers if samples.n_prompts else 0
        return (
            f"{self.benchmark.name} is a table of your own ({self.benchmark.path}), asked "
            f"{settings} with {n_samples or 'no'} samples for confidence"
        )


@dataclass(frozen=True)
class Config(_Given):
    """What conf/config.yaml composes."""

    prompt: InRecipe[dict[str, Any]]
    metrics: InRecipe[dict[str, Any]]
    sweep: Sweep
    run_name: Annotated[Text | None, _WHERE]
