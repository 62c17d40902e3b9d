"""The callback of transformers' Trainer: a real training of a tiny model, measured on the way."""

import random
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import ray
import torch
import transformers
import yaml

import factsweep
from factsweep import FactsweepCallback, InputError
from factsweep.pipeline.cli import main
from factsweep.pipeline.commands.trainer_callback import undisturbed
from factsweep.pipeline.results.past_runs import branches
from tests.messages import naming
from tests.tiny_models import save

SMALL = ["benchmark=myriadlama-mini", "prompt=zero-shot", "benchmark.relations=[P36]"]
SMALL += ["benchmark.pairs_per_relation=3", "benchmark.names_per_subject=1", "metrics.n_rounds=20"]
SCORED = ["benchmark=probelm-mini", "benchmark.pairs_per_relation=1", "metrics.n_rounds=20"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FACTSWEEP_CONFIG_DIR", raising=False)
    return tmp_path


def train(*callbacks: FactsweepCallback, steps: int = 4, **changes: Any) -> transformers.Trainer:
    """A training whose dropout, order and augmentation draw from all random generators."""
    folder = save("llama", Path("mine"))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attention_dropout=0.3)
    model.model.layers[0].eval()  # frozen by its owner, and to stay so
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer(f"The capital of country {n} is city {n}.").input_ids for n in range(8)]

    def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
        shift = random.randrange(3) + np.random.randint(3)  # noqa: NPY002
        texts = [row["input_ids"][shift : shift + 24] for row in rows]
        return {"input_ids": torch.tensor(texts), "labels": torch.tensor(texts)}

    options = {"max_steps": steps, "per_device_train_batch_size": 2, "logging_steps": 1}
    options |= {"report_to": [], "save_strategy": "no", "use_cpu": True, "disable_tqdm": True}
    options |= {"learning_rate": 1e-2, "gradient_checkpointing": True}
    trainer = transformers.Trainer(
        model,
        transformers.TrainingArguments("out", **options | changes),
        data_collator=collate,
        train_dataset=[{"input_ids": row} for row in ids],
        processing_class=tokenizer,
        callbacks=list(callbacks),
    )
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    trainer.train(resume_from_checkpoint=changes.get("resume_from_checkpoint"))
    return trainer


def losses(trainer: transformers.Trainer) -> list[float]:
    return [log["loss"] for log in trainer.state.log_history if "loss" in log]


def sources(study: str, *steps: int) -> list[dict[str, Any]]:
    """What the recipes of the answers name, for some steps of a study."""
    runs = branches("results", [f"{study}/step-{step}" for step in steps])
    return [run.answers.recipe.fields["source"] for run in runs]


@pytest.mark.slow
def test_measured_training_is_the_same_training_and_a_study_draws_its_curve(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = train()
    with monkeypatch.context() as patch:
        patch.setattr(ray, "init", lambda *_, **__: pytest.fail("Ray was started"))
        measured = train(FactsweepCallback("mine", *SMALL, every_n_steps=2))
    assert losses(measured) == losses(plain)  # bit by bit
    for left, right in zip(measured.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(left, right)
    modes = [module.training for module in measured.model.modules()]
    assert modes == [module.training for module in plain.model.modules()]
    assert measured.model.config.to_dict() == plain.model.config.to_dict()
    first = sources("mine", 2, 4)
    assert [source["step"] for source in first] == [2, 4]
    capsys.readouterr()
    assert main(["study", "mine"]) == 0
    printed = capsys.readouterr().out
    assert [f"| step-{step} | {step} " in printed for step in (2, 4)] == [True, True]
    assert "2 runs, 0 missing" in printed
    assert main(["compare", "mine/step-2", "mine/step-4"]) == 0
    assert len([*Path("artifacts/metrics").iterdir()]) == 2  # the study computed none
    train(FactsweepCallback("mine", *SMALL, every_n_steps=2))  # the same weights, another training
    second = sources("mine", 2, 4)
    assert {source["training"] for source in first}.isdisjoint(s["training"] for s in second)
    assert len([*Path("artifacts/generations").iterdir()]) == 4


@pytest.mark.slow
def test_resumed_training_of_scored_texts_adds_its_steps(here: Path) -> None:
    saved = {"save_strategy": "steps", "save_steps": 2}
    train(FactsweepCallback("mine", *SCORED, every_n_steps=1), steps=3, **saved)
    checkpoint = {"resume_from_checkpoint": "out/checkpoint-2"}
    train(FactsweepCallback("mine", *SCORED, every_n_steps=2), **saved, **checkpoint)
    content = yaml.safe_load(Path("factsweep.d/study/mine.yaml").read_text())
    steps = [f"step-{step}.parquet" in content["runs"][-1] for step in (1, 2, 3, 4)]
    assert steps == [True, True, False, True]  # the third is of weights that were given up
    trainings = [source["training"] for source in sources("mine", 1, 2, 4)]
    assert trainings[0] == trainings[1] != trainings[2]
    results = factsweep.load("results/mine/step-4")
    assert results.metrics.filter(metric="accuracy")["n"].max()


@pytest.mark.slow
def test_measurement_that_cannot_be_written_does_not_end_the_training(
    here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Path("full").touch()  # a file, where a folder has to be
    callback = FactsweepCallback("mine", *SMALL, "results=full", every_n_steps=1)
    assert len(losses(train(callback, steps=2))) == 2
    (message,) = (text for text in caplog.messages if text.startswith("step-2: "))
    assert "factsweep-mine/step-2.parquet" in message
    answers = pl.read_parquet("out/factsweep-mine/step-2.parquet")
    assert answers.columns == ["prompt_id", "asked", "text"]
    assert answers["text"].null_count() == 0


def test_measurement_restores_modes_and_random_generators() -> None:
    model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(1, 1)).train()
    model[1].eval()

    def draw() -> tuple[float, float, float]:
        return random.random(), np.random.random(), float(torch.rand(1))  # noqa: NPY002

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    expected = draw()
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    torch.set_rng_state(states[2])
    with suppress(InterruptedError), undisturbed(model):
        assert not model.training
        draw()
        raise InterruptedError  # an error restores them, too
    assert draw() == expected
    assert [module.training for module in model.modules()] == [True, True, False]


def begin(*overrides: str, tokenizer: Any = None, fsdp: bool = False, **changes: Any) -> None:
    """The beginning of a training, as the Trainer calls it."""
    model = transformers.AutoModelForCausalLM.from_pretrained("mine")
    waits = SimpleNamespace(wait_for_everyone=lambda: None)
    arguments = SimpleNamespace(output_dir="out", fsdp=fsdp, distributed_state=waits)
    state = SimpleNamespace(is_world_process_zero=True, global_step=0)
    callback = FactsweepCallback(changes.pop("study", "mine"), *overrides, every_n_steps=2)
    options = {"model": model, "processing_class": tokenizer}
    callback.on_train_begin(arguments, state, SimpleNamespace(), **options)


def test_wrong_argument_is_refused_before_the_first_step(here: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(save("llama", here / "mine"))
    study = here / "factsweep.d/study/hers.yaml"
    study.parent.mkdir(parents=True)
    study.write_text("runs: [model=gpt2]\n")
    for overrides, options, words in (
        (SMALL, {}, ["processing_class"]),
        (SMALL, {"tokenizer": tokenizer, "fsdp": True}, ["FSDP"]),
        (SMALL, {"tokenizer": tokenizer, "study": "hers"}, ["hers.yaml"]),
        (SMALL, {"tokenizer": tokenizer, "study": "pythia"}, ["pythia"]),
        (["benchmark=distractors-mini"], {"tokenizer": tokenizer}, ["distractors-mini"]),
        (["sweep=paper"], {"tokenizer": tokenizer}, ["prompt="]),
        (["sweep=estimate"], {"tokenizer": tokenizer}, ["sweep="]),
        (["model.max_model_len=9", *SMALL], {"tokenizer": tokenizer}, ["model.max_model_len=9"]),
        (["prompt=zero"], {"tokenizer": tokenizer}, ["zero"]),
    ):
        with pytest.raises(InputError, match=naming(*words)):
            begin(*overrides, **options)
    arguments = SimpleNamespace(fsdp=False)
    with pytest.raises(InputError, match="Linear"):
        FactsweepCallback("mine", every_n_steps=1).on_train_begin(
            arguments, None, None, torch.nn.Linear(1, 1)
        )
    for study, override, every_n_steps, word in (
        ("mine", "seed=1", 0, "every_n_steps=0"),
        ("mine", "model=gpt2", 1, "model=gpt2"),
        ("mine", "budget=1%", 1, "budget=1%"),
        ("../mine", "seed=1", 1, "'../mine'"),
    ):
        with pytest.raises(InputError, match=naming(word)):
            FactsweepCallback(study, override, every_n_steps=every_n_steps)
    assert not Path("results").exists()
