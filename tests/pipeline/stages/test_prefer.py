"""Preferences through the stages that all answers go through, by a small real model."""

import math
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from transformers import AutoModelForCausalLM, AutoTokenizer

from factsweep.operators.engines.preference import log_sum
from factsweep.operators.engines.transformers import CandidatesLM
from factsweep.operators.errors import InputError
from factsweep.operators.methods.method import PREFER
from factsweep.operators.prompts.expansion import longest_text
from factsweep.operators.schemas import empty
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.decoding.remaining_prompts import Hardware, Work
from factsweep.pipeline.inputs import models
from factsweep.pipeline.stages.admit import Admit
from factsweep.pipeline.stages.prefer import Continue, Prefer
from factsweep.pipeline.stages.question import Question
from factsweep.pipeline.storage.artifact import Artifact, Recipe
from factsweep.pipeline.storage.store import Store
from tests.messages import naming
from tests.pipeline.here import Dying, decode_here

SHARD = "P1.0000"
LABELS = {"Q1": ["Paris"], "Q2": ["Rome", "Roma"], "Q3": ["Oslo", "Oslo"], "Q4": ["Bern"]}
CLOZES = {"f.0.0": "It lies in", "f.0.1": "Its capital is", "g.0.0": "They live in"}
MOST = 1e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that has opinions, and reads bytes."""
    path = Path(__file__).parents[2] / "tiny_models.py"
    model_folder: Path = runpy.run_path(str(path))["save"](
        "llama", tmp_path_factory.mktemp("llama")
    )
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(3 if weights.dim() > 1 else 1)
    model.save_pretrained(model_folder)
    return model_folder


@pytest.fixture(scope="module")
def reads(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def engine(model: Any, reads: Any) -> CandidatesLM:
    return CandidatesLM(model, reads)


def rows_of(table: str, rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    schema = empty(table).schema
    full_rows = [{name: row.get(name) for name in schema} for row in rows]
    return pl.DataFrame(full_rows, schema=schema)


@pytest.fixture
def prompts(tmp_path: Path) -> Artifact:
    """Three clozes of two facts: `f` of Paris, before Rome, Oslo and Bern; `g` of Bern."""
    return published(tmp_path, {"f": ["Q1", "Q2", "Q3", "Q4"], "g": ["Q4", "Q3"]}, ranks=True)


@pytest.fixture
def unranked(tmp_path: Path) -> Artifact:
    """The same clozes with one set of candidates; Rome is another right answer of `f`."""
    return published(tmp_path, {"all": sorted(LABELS)}, ranks=False)


def published(tmp_path: Path, sets: dict[str, list[str]], *, ranks: bool) -> Artifact:
    artifact = Artifact(Store(str(tmp_path)), Recipe("prompts", 1, {"ranks": ranks}))
    candidates = [
        {
            "candidates_id": name,
            "entity_id": entity_id,
            "rank": rank if ranks else None,
            "labels": LABELS[entity_id],
        }
        for name, entities in sets.items()
        for rank, entity_id in enumerate(entities)
    ]
    clozes = [
        {
            "prompt_id": prompt_id,
            "pair_id": prompt_id[0],
            "template_id": "P1.000",
            "context_id": "cloze",
            "query": query,
            "calibration_rank": 0 if prompt_id == "f.0.0" else None,
            "candidates_id": prompt_id[0] if ranks else "all",
            "answer_id": {"f": "Q1", "g": "Q4"}[prompt_id[0]],
            "left_out": [] if ranks else {"f": ["Q2"], "g": []}[prompt_id[0]],
        }
        for prompt_id, query in CLOZES.items()
    ]
    artifact.begin()
    context = {"context_id": "cloze", "setting": "cloze", "text": "", "demonstrations": []}
    ranked = [row for row in clozes if row["calibration_rank"] == 0]
    for shard, rows in ((SHARD, clozes), ("P1", ranked)):
        table = "prompts" if shard == SHARD else "ranked"
        artifact.write("contexts", shard, rows_of("contexts", [context]))
        artifact.write("candidate_sets", shard, rows_of("candidate_sets", candidates))
        artifact.write(table, shard, rows_of(table, rows), {"distinct": len(rows)})
    artifact.finish(["prompts", "ranked", "contexts", "candidate_sets"])
    return artifact


def work(prompts: Artifact, task: Any, table: str = "preferences", name: str = "one") -> Work:
    source = "ranked" if table == "preferred_again" else "prompts"
    store = prompts.store
    admitted = Artifact(store, Recipe("admitted", 1, {"of": prompts.fingerprint}))
    if not admitted.is_complete():
        admitted.begin()
        admitted.write("errors", SHARD, empty("errors"))
        admitted.finish(["errors"])
    output = Artifact(store, Recipe(table, 1, {"name": name}, {"a": prompts.fingerprint}))
    output.begin()
    question = Question(table, task, source, 1 if source == "ranked" else None)  # type: ignore[arg-type]
    shard = "P1" if source == "ranked" else SHARD
    hardware = Hardware(0, 1, 1, "here")
    return Work(output, prompts, admitted, shard, "tiny", question, 1, 30, 3, 0.5, hardware)


def decoded(item: Work, engine: Any, reads: Any) -> pl.DataFrame:
    decode_here(item, engine, reads, lambda _: False)
    return item.artifact.read(item.table, item.shard)


def plain(model: Any, reads: Any, cloze: str, entity_id: str, ends: Sequence[int]) -> float:
    """The plausibility by a pass over each whole text, tokenised as one."""
    begin, sums = len(reads(cloze).input_ids), []
    for label in set(LABELS[entity_id]):
        ids = torch.tensor([reads(f"{cloze} {label}").input_ids])
        with torch.inference_mode():
            rows = model(ids).logits[0].double().log_softmax(-1)
        label_sum = sum(float(rows[i - 1, ids[0, i]]) for i in range(begin, ids.shape[1]))
        sums.append(label_sum + math.log(float(rows[-1, list(ends)].exp().sum())))
    return log_sum(sums)


def test_preferences_in_the_retrievers_order_are_those_of_the_plain_model(
    prompts: Artifact, engine: CandidatesLM, model: Any, reads: Any
) -> None:
    rows = decoded(work(prompts, Prefer(prompts, "random", 100, "eos")), engine, reads)
    assert rows["prompt_id"].to_list() == list(CLOZES)
    for row in rows.iter_rows(named=True):
        answer_id, *distractor_ids = {"f": ["Q1", "Q2", "Q3", "Q4"], "g": ["Q4", "Q3"]}[
            row["prompt_id"][0]
        ]
        cloze, eos = CLOZES[row["prompt_id"]], [reads.eos_token_id]
        assert row["logprob"] == pytest.approx(plain(model, reads, cloze, answer_id, eos), abs=MOST)
        assert [distractor["entity_id"] for distractor in row["distractors"]] == distractor_ids
        for distractor in row["distractors"]:
            expected = plain(model, reads, cloze, distractor["entity_id"], eos)
            assert distractor["logprob"] == pytest.approx(expected, abs=MOST)
    assert rows["label"].to_list() == ["Paris", "Paris", "Bern"]
    assert (rows["open_logprob"] > rows["logprob"]).all()


def test_preferences_sentence_sums_all_endings(
    prompts: Artifact, engine: CandidatesLM, model: Any, reads: Any
) -> None:
    rows = decoded(work(prompts, Prefer(prompts, "random", 1, "sentence")), engine, reads)
    ends = [reads.eos_token_id, *reads(".\n\r").input_ids]
    expected = plain(model, reads, "It lies in", "Q1", ends)
    assert rows["logprob"][0] == pytest.approx(expected, abs=MOST)
    assert rows["distractors"].list.len().to_list() == [1, 1, 1]


@pytest.mark.parametrize("retrieval", ["exact", "optimal"])
def test_preferences_of_a_search_leave_out_other_right_answers(
    unranked: Artifact, engine: CandidatesLM, model: Any, reads: Any, retrieval: Any
) -> None:
    rows = decoded(work(unranked, Prefer(unranked, retrieval, 9, "eos")), engine, reads)
    for row in rows.iter_rows(named=True):
        allowed = {"f": ["Q3", "Q4"], "g": ["Q1", "Q2", "Q3"]}[row["prompt_id"][0]]
        cloze = CLOZES[row["prompt_id"]]
        scores = {
            entity_id: plain(model, reads, cloze, entity_id, [reads.eos_token_id])
            for entity_id in allowed
        }
        order = sorted(scores, key=scores.__getitem__, reverse=True)
        assert [entity_id["entity_id"] for entity_id in row["distractors"]] == order


def test_preferences_again_backwards_are_the_same(
    prompts: Artifact, engine: CandidatesLM, reads: Any
) -> None:
    first = decoded(work(prompts, Prefer(prompts, "random", 9, "eos")), engine, reads).head(1)
    task = Prefer(prompts, "random", 9, "eos", backwards=True)
    repeated = decoded(work(prompts, task, "preferred_again"), engine, reads)
    assert_frame_equal(repeated, first, check_exact=False, abs_tol=MOST)


def test_preferences_killed_and_resumed_give_the_same_table(
    prompts: Artifact, engine: CandidatesLM, reads: Any
) -> None:
    task = Prefer(prompts, "random", 100, "eos")
    expected = decoded(work(prompts, task), engine, reads)
    item, dying = work(prompts, task, name="killed"), Dying(engine, lives=2)
    with pytest.raises(RuntimeError, match=naming("died")):
        decoded(item, dying, reads)
    last = Dying(engine, lives=9)
    resumed = decoded(item, last, reads)
    assert (dying.seen, last.seen) == (list(CLOZES)[:2], list(CLOZES)[2:])
    assert_frame_equal(resumed, expected)


def test_preferences_answer_without_a_label_is_named(
    tmp_path: Path, engine: CandidatesLM, reads: Any
) -> None:
    prompts = published(tmp_path, {"f": ["Q2"], "g": ["Q4"]}, ranks=True)
    with pytest.raises(InputError, match=naming("Q1")):
        decoded(work(prompts, Prefer(prompts, "random", 9, "eos")), engine, reads)


def test_beams_have_as_many_texts_as_are_asked_for(
    prompts: Artifact, engine: CandidatesLM, reads: Any
) -> None:
    rows = decoded(work(prompts, Continue(3, 4, 5), "beams"), engine, reads)
    assert rows["texts"].list.len().to_list() == rows["logprobs"].list.len().to_list() == [3] * 3
    assert rows["top_tokens"].list.len().to_list() == [5] * 3
    for logprobs in rows["logprobs"]:
        assert logprobs.to_list() == sorted(logprobs, reverse=True)


def test_admit_cloze_must_fit_with_the_longest_label(
    prompts: Artifact, folder: Path, tmp_path: Path
) -> None:
    run: Run = load(["model.source=path", f"model.id={folder}", "model.name=tiny"])
    task = Prefer(prompts, "random", 100, "eos")
    longest = len("Its capital is Paris")
    for limit, refused in ((longest, []), (longest - 1, ["f.0.1"])):
        admit = Admit(prompts, models.resolve(run.model), PREFER, task, limit)
        artifact = Artifact(Store(str(tmp_path)), admit.recipe)
        admit.make(artifact)
        assert artifact.read_all("errors")["prompt_id"].to_list() == refused


def test_longest_text_without_candidates_is_the_prompt() -> None:
    rows = pl.DataFrame({"text": ["a", "b"], "candidates_id": [None, "x"]})
    assert longest_text(rows, None).to_list() == ["a", "b"]
