"""BERTScore: a tiny BERT with random weights, against its formula."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from factsweep.operators.engines.measuring import BertScore
from factsweep.operators.errors import InputError
from tests.messages import naming
from tests.tiny_models import WORDS


@cache
def loaded(bert: Path) -> tuple[Any, Any]:
    return AutoModel.from_pretrained(bert), AutoTokenizer.from_pretrained(bert)


def naive(bert: Path, reference: str, text: str) -> float:
    """F1 of the mean best cosine of each token of one text among those of the other.

    What stands around a text (its beginning and its end) has no weight, but may be the best match.
    """
    model, tokenizer = loaded(bert)

    def vectors(words: str) -> np.ndarray:
        with torch.inference_mode():
            found = model(**tokenizer(words, return_tensors="pt")).last_hidden_state[0].numpy()
        unit: np.ndarray = found / np.linalg.norm(found, axis=1, keepdims=True)
        return unit

    cosines = vectors(reference) @ vectors(text).T
    recall, precision = cosines.max(1)[1:-1].mean(), cosines.max(0)[1:-1].mean()
    return float(2 * precision * recall / (precision + recall))


def test_score_is_the_f1_of_best_cosines(bert: Path) -> None:
    assert BertScore(str(bert))([("rome", "rome")]) == pytest.approx([1], abs=1e-5)
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 8))) for _ in range(40)]
    pairs = [*zip(texts[::2], texts[1::2], strict=True)]
    found = BertScore(str(bert))(pairs)
    assert found == pytest.approx([naive(bert, *pair) for pair in pairs], abs=1e-4)


def test_blank_text_scores_nothing(bert: Path) -> None:
    pairs = [("rome", " "), ("rome", "rome"), ("", "rome")]
    assert BertScore(str(bert))(pairs) == pytest.approx([0, 1, 0], abs=1e-5)
    assert BertScore(str(bert))([("rome", "")]) == [0.0]


def test_model_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=naming("metrics.encoder=")):
        BertScore(str(tmp_path / "none"))([("a", "b")])
