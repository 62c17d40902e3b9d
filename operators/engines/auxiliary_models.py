"""Models that metrics and descriptions of data sets use; they are not measured themselves."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from factsweep.operators.errors import InputError, reason
from factsweep.operators.matching.normalise import load_pipeline

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc
    from torch import Tensor


@dataclass(frozen=True)
class BertScore:
    """BERTScore (Zhang et al. 2020; F1, no idf, no baseline) by an encoder: a folder or a hub id.

    Layer: the one that bert-score recommends for a model it knows, else the last.
    """

    model: str

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The F1 of each pair of a reference and a continuation; 0 where one of them is blank.

        Raises:
            InputError: the model cannot be loaded.
        """
        # bert-score cannot read an empty text with transformers 5.
        full = [pair for pair in pairs if all(text.strip() for text in pair)]
        if not full:
            return [0.0] * len(pairs)
        references, texts = ([pair[i] for pair in full] for i in (0, 1))
        f1 = self._scorer.score(texts, references)[2].tolist()
        scores = dict(zip(full, f1, strict=True))
        return [float(scores.get(pair, 0.0)) for pair in pairs]

    @cached_property
    def _scorer(self) -> Any:
        from bert_score import BERTScorer
        from bert_score.utils import model2layers
        from transformers import AutoConfig

        try:
            config = AutoConfig.from_pretrained(self.model)
            layers = model2layers.get(self.model, config.num_hidden_layers)
            scorer = BERTScorer(self.model, num_layers=layers, batch_size=64)
        except (OSError, ValueError) as error:
            raise InputError(
                f"metrics.encoder={self.model!r} cannot be loaded ({str(error).splitlines()[0]}); "
                "give the folder or the hub's id of an encoder model."
            ) from error
        # A tokenizer without a maximum has a number here that it cannot cut at.
        longest = min(scorer._tokenizer.model_max_length, config.max_position_embeddings)
        scorer._tokenizer.model_max_length = longest
        return scorer


@dataclass(frozen=True)
class DependencyParser:
    """Parses texts with the spaCy pipeline of that name, or that lies in that folder."""

    pipeline: str

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """The place of each word's head, for each text; a root is its own head.

        Words are spaCy's tokens, punctuation too, white space not.

        Raises:
            InputError: the pipeline is not installed, or has no parser.
        """
        docs = list(self._nlp.pipe(texts))
        if not all(doc.has_annotation("DEP") for doc in docs):
            raise InputError(
                f"spaCy pipeline {self.pipeline!r} has no dependency parser "
                f"(it has {', '.join(self._nlp.pipe_names) or 'no component'}); "
                "name one that has, such as en_core_web_sm."
            )
        return list(map(heads, docs))

    @property
    def versions(self) -> dict[str, str]:
        """The versions that decide the trees."""
        return {"spacy": version("spacy"), self.pipeline: str(self._nlp.meta["version"])}

    @cached_property
    def _nlp(self) -> "Language":
        return load_pipeline(self.pipeline)


def heads(doc: "Doc") -> list[int]:
    """The place of each word's head in a parsed spaCy Doc; white space is no word."""
    # spaCy hangs white space from the word before it: nothing hangs from white space.
    words = [token for token in doc if not token.is_space]
    places = {token.i: place for place, token in enumerate(words)}
    return [places[token.head.i] for token in words]


_POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}
_STEPS = ("Transformer", "Pooling", "Normalize")


class Recipe(NamedTuple):
    """The steps from a model's token vectors to one vector."""

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
        """The steps that the model's own files name."""
        modules = self._read("modules.json")
        if modules is None:
            return Recipe()
        steps = {str(step["type"]).rsplit(".", 1)[-1]: str(step["path"]) for step in modules}
        if unknown := [step for step in steps if step not in _STEPS]:
            raise InputError(
                f"sentence encoder {self.model} has a step {unknown[0]}; "
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
        names = config.get("pooling_mode", switches)
        modes = [_POOLINGS.get(n, n) for n in ([names] if isinstance(names, str) else names)]
        if len(modes) != 1 or modes[0] not in _POOLINGS.values():
            raise InputError(
                f"sentence encoder {self.model} pools by {' and '.join(modes) or 'nothing'}; "
                f"choose one that pools by {' or '.join(_POOLINGS.values())}."
            )
        return modes[0]

    def _read(self, name: str) -> Any:
        from transformers.utils import cached_file

        try:
            path = cached_file(self.model, name, _raise_exceptions_for_missing_entries=False)
        except OSError as error:
            raise self._unloadable(error) from error
        return None if path is None else json.loads(Path(path).read_text(encoding="utf-8"))

    @cached_property
    def _tokenizer_and_model(self) -> tuple[Any, Any]:
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
        tokenizer, model = self._tokenizer_and_model
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
    is_text = mask.unsqueeze(-1).bool()
    if pooling == "cls":
        # The first token that is no padding: some tokenizers pad on the left.
        first = mask.argmax(dim=1)
        return vectors[range(len(vectors)), first]
    if pooling == "max":
        return vectors.masked_fill(~is_text, float("-inf")).amax(dim=1)
    return (vectors * is_text).sum(dim=1) / is_text.sum(dim=1)
