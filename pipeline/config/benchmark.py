"""The facts that are asked for, and how they are measured (conf/benchmark/)."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from factsweep.operators.datasets.contradictions import Unseen
from factsweep.pipeline.config.limits import Count, CountOrNone, NotEmpty, Text
from factsweep.pipeline.config.recipe import InRecipe, InTables, NoNumber
from factsweep.pipeline.config.sweep import Sweep

_TAKEN = NoNumber("decoding takes it where nothing else is said, and has it in recipes")


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
    max_tokens: Annotated[Count, _TAKEN]
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
    # Characters that nobody sees, in templates, names and labels.
    unseen: Annotated[Unseen, NoNumber("the recipe of the facts says where they were removed")] = (
        "keep"
    )
