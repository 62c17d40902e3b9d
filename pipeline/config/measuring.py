"""How answers are matched (conf/matching/); what is computed of them is each method's own."""

from dataclasses import dataclass

from factsweep.pipeline.config.limits import Text
from factsweep.pipeline.config.recipe import InRecipe


@dataclass(frozen=True)
class Matching:
    """How answers are normalised (conf/matching/)."""

    pipeline: InRecipe[Text]
