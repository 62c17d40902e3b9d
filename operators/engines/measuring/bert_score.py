"""BERTScore: how alike two texts are to an encoder model, token by token.

Source: Zhang et al. 2020, as their package bert-score computes it (F1; no idf weights, no rescaling
by a baseline).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from factsweep.operators.errors import InputError


@dataclass(frozen=True)
class BertScore:
    """Compares texts by an encoder: a folder, or an id on the hub.

    It compares the vectors of the layer that bert-score recommends for a model it knows, else of
    the last.
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
            found = BERTScorer(self.model, num_layers=layers, batch_size=64)
        except (OSError, ValueError) as error:
            raise InputError(
                f"metrics.encoder={self.model!r} cannot be loaded ({str(error).splitlines()[0]}); "
                "give the folder or the hub's id of an encoder model."
            ) from error
        # A tokenizer that names no longest text has a number here that it cannot cut at.
        longest = min(found._tokenizer.model_max_length, config.max_position_embeddings)
        found._tokenizer.model_max_length = longest
        return found
