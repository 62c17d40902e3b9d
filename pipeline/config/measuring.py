"""How answers are matched (conf/matching/), and what is computed of them (conf/metrics/)."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from pipeline.config.limits import Count, Text
from pipeline.config.recipe import InRecipe


@dataclass(frozen=True)
class Matching:
    """How answers are normalised (conf/matching/)."""

    pipeline: InRecipe[Text]


@dataclass(frozen=True)
class Metrics:
    """How much is drawn for fluctuation and intervals (conf/metrics/)."""

    n_draws: InRecipe[Count]
    n_rounds: InRecipe[Annotated[int, Field(ge=1, le=1_000_000)]]
    n_bins: InRecipe[Annotated[int, Field(ge=1, le=1_000)]]
    analyses: InRecipe[tuple[Text, ...]]
