"""Run: the settings of one command; Config: the composition of conf/ that it is built from.

The groups conf/benchmark/, conf/matching/ and conf/decoding/ are classes of their own.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from factsweep.operators.datasets.facts import Unseen
from factsweep.operators.datasets.object_types import Types
from factsweep.operators.engines import ENGINES
from factsweep.operators.engines.protocol import Ability, EngineKind
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Method, PromptSetting
from factsweep.operators.prompts.setting import Templates
from factsweep.pipeline.config.cluster import Cluster
from factsweep.pipeline.config.folders import OWN_FACTS, OWN_QUESTIONS, below
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.recipe import (
    Count,
    CountOrNone,
    InRecipe,
    InTables,
    NoNumber,
    NotEmpty,
    Share,
    Text,
)
from factsweep.pipeline.machine import processor


@dataclass(frozen=True)
class Samples:
    """The sampled answers: `n_answers` for each of `n_prompts` prompts, in blocks of one seed."""

    n_prompts: InRecipe[CountOrNone]
    n_answers: InRecipe[Annotated[int, Field(ge=0, le=1_000_000)]]
    block_size: InRecipe[Annotated[int, Field(ge=1, le=10_000)]]  # vLLM takes at most 16,384
    # vLLM treats 0 as greedy, which cannot be sampled, and raises what lies between to 0.01.
    temperature: InRecipe[Annotated[float, Field(ge=0.01, le=100)]]
    top_p: InRecipe[Annotated[float, Field(gt=0, le=1)]]
    until: Annotated[
        Text | None, NoNumber("it chooses n_answers, and the answers are those of that number")
    ]


@dataclass(frozen=True)
class Baselines:
    """Further questions: `beams` continuations of clozes, and their `top_tokens` likeliest tokens.

    `others` is how many clozes of other subjects, and of other relations, each answer is read
    behind.
    """

    beams: InRecipe[Annotated[int, Field(ge=0, le=1_000)]]  # 0: neither is asked
    top_tokens: InRecipe[Annotated[int, Field(ge=1, le=10_000)]]
    others: InRecipe[Annotated[int, Field(ge=0, le=10_000)]]  # 0: none


@dataclass(frozen=True)
class Confidence:
    """The further questions about the canary's answers (`ask`), and their words."""

    ask: InRecipe[tuple[Literal["p_true", "verbalised"], ...]]
    p_true: InRecipe[NotEmpty]
    true: InRecipe[NotEmpty]
    false: InRecipe[NotEmpty]
    verbalised: InRecipe[NotEmpty]
    max_tokens: InRecipe[Annotated[int, Field(ge=1, le=1_000)]]  # of the number


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
    confidence: Confidence
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


_CHOICE = NoNumber("it chooses among the settings of conf/prompt/, which are parts of recipes")
_TAKEN = NoNumber("decoding takes it where nothing else is said, and has it in recipes")
_LARGE = 8  # billions of parameters: models above it take `over_8b`


@dataclass(frozen=True)
class Settings:
    """The settings by their names in conf/prompt/, and the templates that all of them use."""

    prompts: Annotated[Annotated[tuple[Text, ...], Field(min_length=1)] | None, _CHOICE]
    templates: Annotated[Templates | None, _CHOICE] = None


@dataclass(frozen=True)
class Sweep(Settings):
    """The settings, and what takes their place for large models and for encoders."""

    over_8b: Annotated[Settings | None, _CHOICE] = None
    encoders: Annotated[Settings | None, _CHOICE] = None

    def of(self, model: Model) -> Settings:
        """The settings for a model of this kind and size."""
        if self.encoders and model.architecture == "encoder":
            return self.encoders
        large = (model.billions_of_parameters or 0) > _LARGE
        return self.over_8b if self.over_8b and large else self


@dataclass(frozen=True)
class Matching:
    """How answers are normalised and compared (conf/matching/)."""

    pipeline: InRecipe[Text]
    # Of quantities: how far an answer may be from the table's, as a share of that.
    tolerance: Annotated[
        Share, NoNumber("the recipe of matching has it where there may be quantities")
    ] = 0.01
    # The language that dates and numbers are read in; null: all objects are names.
    values_in: InRecipe[Text | None] = None
    # The texts of answers that attempt none (conf/refusals/), where the method counts them.
    refusals: Annotated[
        tuple[NotEmpty, ...],
        NoNumber("the recipe of matching has them where the method counts refusals"),
    ] = ()


@dataclass(frozen=True)
class Benchmark:
    """A set of facts, or the part of it that is measured, and how (conf/benchmark/)."""

    name: InTables[Text]
    method: InRecipe[Text]
    data: InRecipe[Text]
    path: Annotated[
        Text | None, NoNumber("recipes have the checksum of the files, wherever they are")
    ]
    relations: InRecipe[Annotated[tuple[Text, ...], Field(min_length=1)] | None]
    pairs_per_relation: InRecipe[Count | None]
    names_per_subject: InRecipe[Count | None]
    max_tokens: Annotated[CountOrNone, _TAKEN]  # 0: what the longest right answer needs
    stop: Annotated[tuple[NotEmpty, ...], _TAKEN]
    sampled_prompts: Annotated[CountOrNone, _TAKEN]
    canary_prompts: Annotated[CountOrNone, _TAKEN]
    paper: Annotated[
        Sweep, NoNumber("it names the settings of sweep=paper, each of which is part of a recipe")
    ]
    # Of methods that need one: a folder (factsweep build knowledge-base); null: that of the set.
    knowledge_base: Annotated[
        Text | None, NoNumber("its own recipe has the checksum of its files")
    ] = None
    # Of the facts: how they are asked (conf/language/) and how answers are matched.
    language: Annotated[
        Text, NoNumber("the recipes of prompts and of matching have what follows of it")
    ] = "en"
    # Invisible characters in templates, names and labels.
    unseen: Annotated[Unseen, NoNumber("the recipe of the facts says where they were removed")] = (
        "keep"
    )
    # Of a table of one's own: whether dates and numbers are recognised, and what parts a cell.
    types: Annotated[Types, NoNumber("the recipe of matching says in which language")] = "names"
    separator: InRecipe[NotEmpty | None] = None


_AnySeed = Annotated[int, Field(ge=0, le=999_999_999_999)]
_WHERE = NoNumber("it says where files are, not what is in them")
_UNTIL = NoNumber("it says when to stop asking, not what is answered")


@dataclass(frozen=True)
class _RunFields:
    """The fields of a run as they stand in conf/."""

    model: Model
    benchmark: Benchmark
    decoding: Decoding
    matching: Matching
    cluster: Cluster
    seed: InRecipe[_AnySeed]
    artifacts: Annotated[Text, _WHERE]
    results: Annotated[Text, _WHERE]
    answers: Annotated[Text | None, NoNumber("recipes have the checksum of the file")]
    judges: Annotated[
        tuple[Text, ...] | None, NoNumber("the recipe of matching has the verdicts themselves")
    ]
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
class Run(_RunFields):
    """The configuration of one command: one model, one benchmark, one or more settings."""

    settings: InRecipe[tuple[PromptSetting, ...]]
    metrics: InRecipe[Any]
    name: Annotated[Text, _WHERE]

    @property
    def folder(self) -> str:
        """The path or URL of the folder of its results."""
        return below(self.results, self.name)

    @property
    def device(self) -> str:
        """`cuda` where the vLLM that is installed is the CUDA build, else `cpu`."""
        return processor.device(self.cluster.device)

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
        if self.benchmark.data not in (OWN_FACTS, OWN_QUESTIONS) or self.benchmark.path is None:
            return None
        settings = ", ".join(setting.name for setting in self.settings)
        samples = self.decoding.samples
        n_samples = samples.n_answers if samples.n_prompts else 0
        return (
            f"{self.benchmark.name} is a table of your own ({self.benchmark.path}), asked "
            f"{settings} with {n_samples or 'no'} samples for confidence"
        )


@dataclass(frozen=True)
class Config(_RunFields):
    """What conf/config.yaml composes."""

    prompt: InRecipe[dict[str, Any]]
    metrics: InRecipe[dict[str, Any]]
    sweep: Sweep
    run_name: Annotated[Text | None, _WHERE]
