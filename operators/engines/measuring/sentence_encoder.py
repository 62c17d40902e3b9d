"""Sentence embeddings from any encoder that transformers loads.

Sentence-transformers describes what it does to a model's output in files next to the weights:
`modules.json` lists the steps, `1_Pooling/config.json` how token vectors become one vector,
`sentence_bert_config.json` the longest text. We do what they say, with transformers alone. A model
without them is averaged over its tokens and not normalised, which is what sentence-transformers
does with such a model.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from factsweep.operators.errors import InputError, reason

if TYPE_CHECKING:
    from torch import Tensor

_POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}
_STEPS = ("Transformer", "Pooling", "Normalize")


class Recipe(NamedTuple):
    """What turns a model's token vectors into one vector."""

    pooling: str = "mean"
    normalise: bool = False
    max_tokens: int | None = None
    lower_case: bool = False


@dataclass(frozen=True)
class SentenceEncoder:
    """Encodes texts with a model: a folder, or an id on the hub."""

    model: str
    batch_size: int = 64

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One embedding per text: (texts, dimensions).

        Raises:
            InputError: the model cannot be loaded, or does more than pool and normalise.
        """
        rows = [
            self._encode(texts[start : start + self.batch_size])
            for start in range(0, len(texts), self.batch_size)
        ]
        return np.concatenate(rows) if rows else np.empty((0, 0), dtype=np.float32)

    @cached_property
    def recipe(self) -> Recipe:
        """What the model's own files say."""
        modules = self._read("modules.json")
        if modules is None:
            return Recipe()
        steps = {str(each["type"]).rsplit(".", 1)[-1]: str(each["path"]) for each in modules}
        if others := [step for step in steps if step not in _STEPS]:
            raise InputError(
                f"sentence encoder {self.model} has a step {others[0]}; "
                f"choose one that has only {', '.join(_STEPS)}."
            )
        limits = self._read("sentence_bert_config.json") or {}
        pooling = self._read(f"{steps['Pooling']}/config.json") if "Pooling" in steps else None
        return Recipe(
            self._pooling(pooling or {}),
            "Normalize" in steps,
            limits.get("max_seq_length"),
            bool(limits.get("do_lower_case")),
        )

    def _pooling(self, config: dict[str, Any]) -> str:
        # Newer files name the pooling mode (or several); older ones have a switch for each.
        switches = [key for key in config if key.startswith("pooling_mode_") and config[key]]
        named = config.get("pooling_mode", switches)
        each_named = [named] if isinstance(named, str) else named
        modes = [_POOLINGS.get(each, each) for each in each_named]
        if len(modes) != 1 or modes[0] not in _POOLINGS.values():
            raise InputError(
                f"sentence encoder {self.model} pools by {' and '.join(modes) or 'nothing'}; "
                f"choose one that pools by {' or '.join(_POOLINGS.values())}."
            )
        return modes[0]

    def _read(self, name: str) -> Any:
        """A JSON file of the model; None where it has no such file."""
        from transformers.utils import cached_file

        try:
            path = cached_file(self.model, name, _raise_exceptions_for_missing_entries=False)
        except OSError as error:
            raise self._unloadable(error) from error
        return None if path is None else json.loads(Path(path).read_text(encoding="utf-8"))

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        from transformers import AutoModel, AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(self.model)
            return tokenizer, AutoModel.from_pretrained(self.model)
        except (OSError, ValueError) as error:
            raise self._unloadable(error) from error

    def _unloadable(self, error: Exception) -> InputError:
        return InputError(
            f"sentence encoder {self.model} cannot be loaded ({reason(error)}); "
            "give a folder with a config.json, or an id on the hub that can be reached."
        )

    def _encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import torch

        recipe = self.recipe
        tokenizer, model = self._loaded
        limits = (recipe.max_tokens, getattr(model.config, "max_position_embeddings", None))
        inputs = tokenizer(
            [text.lower() if recipe.lower_case else text for text in texts],
            padding=True,
            truncation=True,
            max_length=min((tokenizer.model_max_length, *filter(None, limits))),
            return_tensors="pt",
        )
        with torch.inference_mode():
            vectors = model(**inputs).last_hidden_state
            pooled = _pool(vectors, inputs["attention_mask"], recipe.pooling)
            if recipe.normalise:
                pooled = torch.nn.functional.normalize(pooled, dim=1)
        return np.asarray(pooled.float().numpy(), dtype=np.float32)


def _pool(vectors: "Tensor", mask: "Tensor", pooling: str) -> "Tensor":
    """(texts, tokens, dimensions) → (texts, dimensions), over the tokens that are no padding."""
    kept = mask.unsqueeze(-1).bool()
    if pooling == "cls":
        # The first token that is no padding: some tokenizers pad on the left.
        first = mask.argmax(dim=1)
        return vectors[range(len(vectors)), first]
    if pooling == "max":
        return vectors.masked_fill(~kept, float("-inf")).amax(dim=1)
    return (vectors * kept).sum(dim=1) / kept.sum(dim=1)
