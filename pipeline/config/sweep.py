"""Which settings a command measures, one after the other (conf/sweep/)."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from factsweep.operators.prompts.setting import Templates
from factsweep.pipeline.config.limits import Text
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.recipe import NoNumber

_CHOICE = NoNumber("it chooses among the settings of conf/prompt/, which are parts of recipes")
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
