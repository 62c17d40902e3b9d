"""The facts that are asked for, and how they are measured (conf/benchmark/)."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from factsweep.operators.datasets.facts import Unseen
from factsweep.operators.datasets.object_types import Types
from factsweep.operators.prompts.setting import Templates
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
