"""The model, and the arguments of its engine or its server (conf/model/)."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from factsweep.pipeline.config.recipe import (
    AnyText,
    InRecipe,
    InRecipeIfGiven,
    InTables,
    NoNumber,
    Part,
    Seconds,
    Text,
)

_HOW_MANY = NoNumber("it says how many engines share the work, not what any of them computes")
Replica = Annotated[int, Field(ge=1, le=10_000), _HOW_MANY]
# Arguments of an engine that change no answer, and why; every other one is part of a recipe.
_NO_ANSWER = {
    "max_num_seqs": "how many prompts run at once, which differs between any two runs",
    "max_num_batched_tokens": "how many tokens run at once, likewise",
    "cpu_offload_gb": "where weights wait, not what they are",
    "download_dir": "where files lie",
    "safetensors_load_strategy": "how files are read",
    "use_tqdm_on_load": "what is printed",
    "disable_log_stats": "what is printed",
}
Parallel = Annotated[int, Field(ge=1, le=1024)]
_CLIENT = NoNumber("it says how a server is asked, not what it answers")
# Per million tokens, in the currency of the bill.
Price = Annotated[
    Annotated[float, Field(ge=0, le=1_000_000)] | None, NoNumber("it is what an answer costs")
]


@dataclass(frozen=True)
class Replicas:
    """How many engines of the model run side by side, and how many of them share a GPU."""

    min: Replica
    max: Replica
    per_gpu: Annotated[int, Field(ge=1, le=16), _HOW_MANY]


@dataclass(frozen=True)
class Client:
    """How a model behind an endpoint is asked."""

    key_variable: Annotated[Text, _CLIENT]  # of the environment; with _FILE behind it, of a path
    timeout_s: Annotated[Seconds, _CLIENT]
    give_up_s: Annotated[Seconds, _CLIENT]
    max_concurrent: Annotated[int, Field(ge=1, le=10_000), _CLIENT]


@dataclass(frozen=True)
class Pool:
    """The addresses of servers of one model; any of them may answer a prompt."""

    urls: Annotated[
        tuple[Text, ...], NoNumber("it says which server is asked, and all have the same model")
    ]


@dataclass(frozen=True)
class Model:
    """A model, and the arguments of its engine or its server (conf/model/)."""

    name: InTables[Text]
    architecture: Annotated[
        Literal["decoder", "encoder"],
        NoNumber("it chooses the benchmark's method, which is part of a recipe"),
    ]
    source: InRecipe[Literal["hub", "package", "path", "endpoint", "absent"]]
    id: InRecipe[Text]
    revision: InRecipe[AnyText]
    endpoint: InRecipeIfGiven[Text | Pool]
    tokenizer: InRecipeIfGiven[Text]
    client: Client
    price_in: Price
    price_out: Price
    gguf_file: InRecipe[Text | None]
    adapter: InRecipeIfGiven[Text]
    billions_of_parameters: Annotated[
        Annotated[float, Field(gt=0, le=1_000_000)] | None,
        NoNumber("tables show it; the settings that a sweep chooses by it are parts of recipes"),
    ]
    training_cutoff: Annotated[Text | None, NoNumber("tables show it")]
    chat_template: InRecipe[bool]
    template_kwargs: InRecipeIfGiven[dict[str, Any]] = field(hash=False)  # as of `engine`
    chat_template_text: InRecipeIfGiven[Text]
    prefill: InRecipeIfGiven[Text]
    thinking: InRecipeIfGiven[bool]
    reasoning_parser: InRecipeIfGiven[Text]
    dtype: InRecipe[Literal["auto", "bfloat16", "float16", "float32"]]
    max_model_len: InRecipe[Annotated[int, Field(ge=1, le=100_000_000)]]
    tensor_parallel: InRecipe[Parallel]
    pipeline_parallel: InRecipe[Parallel]
    replicas: Replicas
    trust_remote_code: InRecipe[bool]
    engine: Annotated[dict[str, Any], Part("answers", but=tuple(_NO_ANSWER))] = field(
        hash=False  # a dict has none; models that differ in it alone are still unequal
    )
    gpu_memory_utilization: Annotated[
        float,
        Field(gt=0, le=1),
        NoNumber("it sets how many prompts fit on a GPU at once, not what is computed for each"),
    ]

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of its servers; none where it is loaded here."""
        if isinstance(self.endpoint, Pool):
            return self.endpoint.urls
        return () if self.endpoint is None else (self.endpoint,)

    @property
    def arguments(self) -> dict[str, Any]:
        """Further arguments of its engine; those of the template, if a server renders it."""
        options = self.template_told
        if self.endpoint is None or options is None:
            return self.engine
        return {"chat_template_kwargs": options, **self.engine}

    @property
    def template_told(self) -> dict[str, Any] | None:
        """The arguments of its chat template, with the most common name of the thinking switch."""
        if self.thinking is None:
            return self.template_kwargs
        return {"enable_thinking": self.thinking, **(self.template_kwargs or {})}

    @property
    def computed_in(self) -> str | None:
        """The type that it computes in; null where only a server knows it."""
        return None if self.endpoint else self.dtype
