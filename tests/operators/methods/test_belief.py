"""BELIEF from texts to numbers: confidence, ECE, Brier and Ovconf, by a reading of its own.

Answers are words, whose lemmas are themselves; what is right is read from lists, and scikit-learn
and NumPy do the rest.
"""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.methods import METHODS
from factsweep.operators.metrics.belief.calibration import ece
from factsweep.operators.schemas import empty
from tests.operators.metrics.scalars import brier, ovconf

LABELS = {"P1.a": ["rome"], "P1.b": ["new york", "york"], "P1.c": ["oslo"]}
N_BINS = 4
WORDS = st.sampled_from(["rome", "new", "york", "oslo", "the"])
TEXTS = st.lists(WORDS, max_size=3).map(" ".join)
# As many prompts as bins, or twice as many: no bin is larger than another.
PROMPTS = st.sampled_from([N_BINS, 2 * N_BINS]).flatmap(
    lambda n: st.lists(
        st.tuples(st.sampled_from(sorted(LABELS)), TEXTS, st.lists(TEXTS, min_size=3, max_size=3)),
        min_size=n,
        max_size=n,
    )
)


def holds(text: str, part: str) -> bool:
    """Whether the words of a part stand in a text, one after the other."""
    return bool(part) and f" {part} " in f" {text} "


def facts() -> Facts:
    objects = {pair: [{"object_id": "Q1", "labels": labels}] for pair, labels in LABELS.items()}
    rows = {"pair_id": list(objects), "relation_id": "P1", "objects": list(objects.values())}
    return Facts(empty("relations"), empty("templates"), pl.DataFrame(rows))


@given(PROMPTS)
def test_calibration_from_sampled_texts_equals_a_reading_by_hand(
    prompts: list[tuple[str, str, list[str]]],
) -> None:
    ids = [f"p{number}" for number in range(len(prompts))]
    pairs, texts, samples = (list(column) for column in zip(*prompts, strict=True))
    answers = pl.DataFrame(
        {"prompt_id": ids, "relation_id": "P1", "pair_id": pairs, "text": texts},
        schema_overrides={"text": pl.String},
    )
    sampled = pl.DataFrame({"prompt_id": ids, "text": samples}).explode("text")
    match = METHODS["belief"].measure.matcher(facts(), "blank", lambda: None)
    calibration = match(answers, {"samples": sampled})["calibration"]

    right = [any(holds(t, each) for each in LABELS[p]) for p, t in zip(pairs, texts, strict=True)]
    sure = [
        float(np.mean([holds(text, each) or holds(each, text) for each in own_samples]))
        for text, own_samples in zip(texts, samples, strict=True)
    ]
    order = sorted(range(len(ids)), key=lambda i: (-sure[i], ids[i]))
    cuts = np.array_split(order, N_BINS)
    gaps = [abs(np.mean([sure[i] for i in c]) - np.mean([right[i] for i in c])) for c in cuts]
    assert ece(calibration, N_BINS) == pytest.approx(np.mean(gaps))
    assert brier(calibration) == pytest.approx(brier_score_loss(right, sure, labels=[0, 1]))
    assert ovconf(calibration) == pytest.approx(np.mean(sure) - np.mean(right))
