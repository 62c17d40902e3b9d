"""Encoder models: through the same shards, artifacts and resume as the decoders, by a real BERT."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from scipy.stats import entropy
from transformers import FillMaskPipeline

from factsweep.operators.engines.transformers import MaskedLM
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.masked import candidates, label_tokens
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.results import report
from factsweep.pipeline.stages import facts
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.plan import Branch, Plan
from tests.messages import naming
from tests.pipeline.here import named_runs

Compute = Callable[..., Plan]


Settings = Callable[..., Run]


@pytest.fixture(scope="module")
def encoder_settings(tiny_bert: Any, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Loads a run of the tiny BERT on a part of the mini set, in a named folder."""
    folder = tmp_path_factory.mktemp("encoder")
    tiny_bert.save(folder / "model")
    return named_runs(
        folder,
        *("model=bert-base-uncased", "model.name=tiny-bert", "model.source=path"),
        *(f"model.id={folder}/model", "model.max_model_len=128"),
        *("benchmark.pairs_per_relation=12", "metrics.n_draws=200"),
        *("cluster.rows_per_shard=100", "cluster.rows_per_chunk=32"),
    )


@pytest.fixture(scope="module")
def full_plan(encoder_settings: Settings, tiny_bert: Any, compute_here: Compute) -> Plan:
    return compute_here(encoder_settings("done"), MaskedLM(*tiny_bert))


@pytest.fixture(scope="module")
def branch(full_plan: Plan) -> Branch:
    (branch,) = full_plan.branches
    return branch


def texts(branch: Branch, table: str = "prompts") -> pl.DataFrame:
    shards = branch.prompts.shards(table)
    return pl.concat([with_text(branch.prompts, table, shard) for shard in shards])


def value(metrics: pl.DataFrame, metric: str, variant: str | None = None) -> float:
    rows = metrics.filter(pl.col("slice").is_null(), metric=metric)
    return float(rows.filter(pl.col("variant").eq_missing(pl.lit(variant)))["value"].item())


def test_encoder_predictions_are_those_of_the_fill_mask_pipeline(
    branch: Branch, tiny_bert: Any
) -> None:
    predictions = branch.answers.read_all("masked").sample(60, seed=0)
    rows = texts(branch).join(predictions, on="prompt_id", maintain_order="right")
    peer = FillMaskPipeline(model=tiny_bert.model, tokenizer=tiny_bert.tokenizer, device="cpu")
    for row in rows.iter_rows(named=True):
        best = peer(row["text"], top_k=1)[0]
        assert (row["token_id"], row["token"]) == (best["token"], best["token_str"])
        assert row["probability"] == pytest.approx(best["score"], rel=1e-4)


def test_encoder_candidates_probabilities_stand_in_their_order(
    branch: Branch, tiny_bert: Any
) -> None:
    tokens = candidates(label_tokens(facts.load(branch.facts), tiny_bert.tokenizer))
    prompt = texts(branch).filter(pl.col("prompt_id").str.starts_with("P30.")).head(1)
    (row,) = branch.answers.read_all("masked").join(prompt, on="prompt_id").to_dicts()
    ids = tokens.filter(relation_id="P30")["token_id"].to_list()
    peer = FillMaskPipeline(model=tiny_bert.model, tokenizer=tiny_bert.tokenizer, device="cpu")
    scores = {
        prediction["token"]: prediction["score"]
        for prediction in peer(row["text"], top_k=len(peer.tokenizer))
    }
    assert row["candidate_probabilities"] == pytest.approx([scores[i] for i in ids], rel=1e-3)


def test_encoder_accuracy_is_that_of_a_reading_prompt_by_prompt(
    branch: Branch, tiny_bert: Any
) -> None:
    right: dict[str, set[str]] = {}
    for pair in facts.load(branch.facts).pairs.iter_rows(named=True):
        labels = {label.lower() for name_ in pair["objects"] for label in name_["labels"]}
        right[pair["pair_id"]] = labels & set(tiny_bert.tokenizer.get_vocab())
    prompts = branch.prompts.read_all("prompts").with_columns(
        decoded=pl.coalesce("same_as", "prompt_id")
    )
    tokens = branch.answers.read_all("masked").select(decoded="prompt_id", token="token")
    hits: dict[str, list[bool]] = {}
    for pair_id, token in prompts.join(tokens, on="decoded").select("pair_id", "token").rows():
        if right[pair_id]:
            hits.setdefault(pair_id, []).append(token in right[pair_id])
    expected = sum(sum(name_) / len(name_) for name_ in hits.values()) / len(hits)
    metrics = branch.metrics.read_all("metrics")
    assert value(metrics, "acc_at_1") == pytest.approx(expected)
    assert 0 < expected < 1
    assert value(metrics, "pairs_left_out") == pytest.approx(1 - len(hits) / len(right))
    assert 0 < len(hits) < len(right)  # some objects are no single token
    assert metrics["n_failed"].sum() == 0  # and are left out, not failed


def test_encoder_bias_level_is_that_of_a_plain_pass(branch: Branch, tiny_bert: Any) -> None:
    """1 − H / log(candidates) by scipy, from a plain pass of transformers."""
    tokens = candidates(label_tokens(facts.load(branch.facts), tiny_bert.tokenizer))
    ids = dict(tokens.group_by("relation_id").agg("token_id").iter_rows())
    shares: dict[tuple[str, str], list[Any]] = {}
    prompts = texts(branch, "content_free")
    assert branch.extra_outputs[0].read_all("priors")["prompt_id"].equals(prompts["prompt_id"])
    for row in prompts.iter_rows(named=True):
        relation = row["template_id"].partition(".")[0]
        read = tiny_bert.tokenizer(row["text"], return_tensors="pt")
        with torch.inference_mode():
            logits = tiny_bert.model(**read).logits[0]
        (mask,) = (read.input_ids[0] == tiny_bert.tokenizer.mask_token_id).nonzero()[:, 0]
        distribution = logits[mask].double().softmax(0).numpy()[ids.get(relation, [])]
        if len(distribution) > 1:
            shares.setdefault((relation, row["template_id"]), []).append(
                distribution / distribution.sum()
            )
    templates = {key: np.mean(shares_, axis=0) for key, shares_ in shares.items()}
    relations = [
        np.mean([shares_ for key, shares_ in templates.items() if key[0] == relation], axis=0)
        for relation in sorted({relation for relation, _ in templates})
    ]
    metrics = branch.metrics.read_all("metrics")
    for variant, distributions in ((None, templates.values()), ("prompts=multi", relations)):
        levels = [1 - entropy(shares_) / np.log(len(shares_)) for shares_ in distributions]
        distribution = value(metrics, "bias_level", variant)
        assert distribution == pytest.approx(np.mean(levels), rel=1e-3)
        assert 0 < distribution < 1


def test_encoder_report_has_its_row_in_table_3(full_plan: Plan) -> None:
    report.write(full_plan, {"total": 0})
    folder = Path(full_plan.run.results) / "done"
    table = pl.read_csv(folder / "tables" / "table-3.csv")
    ours = table.filter(PLM="tiny-bert", source="measured")
    assert ours.height == 1
    assert ours["Acc@1"].item() != "–"


def test_encoder_is_not_asked_for_sets_of_answers(encoder_settings: Settings) -> None:
    with pytest.raises(InputError, match=naming("asks", "answers")):
        encoder_settings("kamel", "benchmark=kamel-mini")
