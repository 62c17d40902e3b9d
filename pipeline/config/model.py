"""The model that is asked, and what an engine needs to load it (conf/model/)."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from pipeline.config.limits import Text
from pipeline.config.recipe import InRecipe, InTables, NoNumber

_HOW_MANY = NoNumber("it says how many engines share the work, not what any of them computes")
Replica = Annotated[int, Field(ge=1, le=10_000), _HOW_MANY]
Parallel = Annotated[int, Field(ge=1, le=1024)]


@dataclass(frozen=True)
class Replicas:
    """How many engines of the model run side by side."""

    min: Replica
    max: Replica


@dataclass(frozen=True)
class Model:
    """A model, and what an engine needs to load it (conf/model/)."""

    name: InTables[Text]
    architecture: Annotated[
        Literal["decoder", "encoder"],
        NoNumber("it chooses the benchmark's method, which is part of a recipe"),
    ]
    source: InRecipe[Literal["hub", "package", "path"]]
    id: InRecipe[Text]
    revision: InRecipe[str]
    gguf_file: InRecipe[Text | None]
    billions_of_parameters: Annotated[
        float,
        Field(gt=0, le=1_000_000),
        NoNumber("tables show it; the settings that a sweep chooses by it are parts of recipes"),
    ]
    instruction_tuned: Annotated[
        bool, NoNumber("it is a label; chat_template says how the model is asked")
    ]
    training_cutoff: Annotated[Text | None, NoNumber("tables show it")]
    chat_template: InRecipe[bool]
    dtype: InRecipe[Literal["auto", "bfloat16", "float16", "float32"]]
    max_model_len: InRecipe[Annotated[int, Field(ge=1, le=100_000_000)]]
    tensor_parallel: InRecipe[Parallel]
    pipeline_parallel: InRecipe[Parallel]
    replicas: Replicas
    trust_remote_code: InRecipe[bool]
    gpu_memory_utilization: Annotated[
        float,
        Field(gt=0, le=1),
        NoNumber("it sets how many prompts fit on a GPU at once, not what is computed for each"),
    ]
