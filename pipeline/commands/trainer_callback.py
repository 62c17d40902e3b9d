"""A callback of transformers' Trainer that measures a set every n steps, with the running model.

No engine is loaded, and no Ray started: this process decodes the prompts, and `score` measures the
answers. The model is used as training left it, and is given back so.
"""

import io
import json
import random
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml
from transformers import TrainerCallback

from factsweep.operators.engines.transformers.greedy import Greedy
from factsweep.operators.engines.transformers.likelihood import Likelihood
from factsweep.operators.errors import FactsweepError, InputError
from factsweep.operators.methods.method import GENERATE, SCORE
from factsweep.operators.wording import safe_names
from factsweep.pipeline.commands.api import format_overrides
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.literal_overrides import quote
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.runs.prompts import iterate_prompts
from factsweep.pipeline.runs.run import score
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages import generate
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.external_answers import SOURCE
from factsweep.pipeline.stages.plan import asking
from factsweep.pipeline.stages.question import Task, check_reading, room
from factsweep.pipeline.storage.store import Store

_HEAD = "# Written by factsweep.FactsweepCallback, which replaces it.\n"
# Overrides that the callback gives, or that ask for other kinds of runs.
_OWN_KEYS = ("answers", "budget", "model", "model.id", "model.name", "model.source", "run_name")
_STEP = re.compile(r"step-(\d+)")
# Trainings that begin together share the prompts, which one of them writes.
_WAITS = "cluster.when_held=wait"
_DTYPES = ("bfloat16", "float16", "float32")


@dataclass(frozen=True)
class _Prompts:
    """The prompts of a setting that fit the model, as its task reads them.

    `rows` are the task's (prompt_id, text, …), `file_rows` those of a file of answers.
    """

    task: Task
    rows: pl.DataFrame
    file_rows: pl.DataFrame


class FactsweepCallback(TrainerCallback):
    """Measures a benchmark every n steps of a training; `factsweep study NAME` draws the curve.

        callback = FactsweepCallback("mine", "benchmark=myriadlama-mini", every_n_steps=500)
        Trainer(model, args, train_dataset=data, processing_class=tokenizer, callbacks=[callback])

    Each measurement is a run `<study>/step-<n>`. Its answers are in the trainer's `output_dir`,
    with the training and the step, which the recipe names. Overrides are those of the command
    line, of one setting; the model is the one in training. The main process measures, and the
    others wait. The state of the model and of all random generators is restored.

    Raises:
        InputError: at the beginning of a training: an argument is wrong, the tokenizer misreads a
            prompt, or the model's weights are spread over processes.
    """

    def __init__(self, study: str, *overrides: str, every_n_steps: int, **fields: object) -> None:
        """Name the study; `every_n_steps` are steps of the optimizer.

        Raises:
            InputError: the name or the number is wrong.
        """
        safe_names.check(study, "the study")
        safe_names.check_run(study)
        if every_n_steps < 1:
            raise InputError(f"every_n_steps={every_n_steps}; it must be at least 1.")
        self._study, self._every_n_steps = study, every_n_steps
        self._overrides = format_overrides(*overrides, **fields)
        for override in self._overrides:
            if override.partition("=")[0] in _OWN_KEYS:
                raise InputError(f"{override}: a training says this itself; leave it out.")
        self._training = ""
        self._steps: list[int] = []
        self._prompts: _Prompts | None = None

    def on_train_begin(
        self,
        args: Any,
        state: Any,
        control: Any,  # noqa: ARG002 (the Trainer passes it by position)
        model: Any = None,
        processing_class: Any = None,
        **_: Any,
    ) -> None:
        """Read the prompts, and refuse what could not be measured later."""
        _check_whole(args, model)
        with self._in_main_process(args, state) as is_main, undisturbed(model):
            if is_main:
                self._begin_training(args, state, model, processing_class)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Measure every n steps, and after the last one."""
        if state.global_step % self._every_n_steps and not control.should_training_stop:
            return
        with self._in_main_process(args, state) as is_main, undisturbed(model):
            if is_main:
                self._measure_step(args, state.global_step, model)

    @contextmanager
    def _in_main_process(self, args: Any, state: Any) -> Iterator[bool]:
        """Whether this is the main process; the others wait at the end, also for an error."""
        try:
            yield state.is_world_process_zero
        finally:
            args.distributed_state.wait_for_everyone()

    def _begin_training(self, args: Any, state: Any, model: Any, processing_class: Any) -> None:
        tokenizer = getattr(processing_class, "tokenizer", processing_class)
        if tokenizer is None:
            raise InputError("the Trainer has no tokenizer; give it processing_class=tokenizer.")
        self._tokenizer = deepcopy(tokenizer)  # a collator may be using it
        self._training = uuid.uuid4().hex  # weights at a step of another training are others
        self._model_overrides = _describe_model(model, self._study)
        self._check_study_file()
        self._prompts = self._read_prompts()
        folder = self._answers_folder(args)
        names = (_STEP.fullmatch(path.stem) for path in folder.glob("step-*.parquet"))
        steps = sorted(int(match[1]) for match in names if match)
        # A resumed training has measured the steps before, and repeats the steps behind.
        self._steps = [step for step in steps if step <= state.global_step]

    def _read_prompts(self) -> _Prompts:
        run = load([_WAITS, *self._study_overrides()])
        if run.budget is not None:
            raise InputError("a training asks all prompts; leave sweep= out, and take fewer facts.")
        ability = run.method.ask.ability
        if ability not in (GENERATE, SCORE) or run.model.thinking:
            raise InputError(
                f"benchmark={run.benchmark.name} cannot be asked in a training, which continues "
                "and scores texts, without thoughts; take another."
            )
        file_rows = pl.concat(iterate_prompts(run)).drop("prompt")
        (setting,) = run.settings
        prompts = asking(run, setting)[-1].artifact
        run = replace(run, decoding=facts_stage.with_room(run))
        is_scored = ability == SCORE
        questions = generate.score_questions(run) if is_scored else generate.questions(run, setting)
        question, shards = questions.answers, prompts.shards("prompts")
        rows = question.select_rows(
            pl.concat(with_text(prompts, "prompts", shard) for shard in shards)
        )
        task, limit = question.task, room(run)
        if run.model.chat_template_text is not None:
            self._tokenizer.chat_template = run.model.chat_template_text
        check_reading(task, self._tokenizer, rows)
        n_tokens = list(map(len, task.token_ids(self._tokenizer, rows["text"].to_list())))
        rows = rows.filter(pl.Series(n_tokens) <= limit)
        if rows.is_empty():
            raise InputError(
                f"all prompts have more than the {limit:,} tokens that model.max_model_len="
                f"{run.model.max_model_len} leaves room for; raise it, or take another prompt=."
            )
        return _Prompts(task, rows, file_rows)

    def _measure_step(self, args: Any, step: int, model: Any) -> None:
        """Answer the prompts, and measure; what goes wrong then does not end the training."""
        path = self._answers_folder(args) / f"step-{step}.parquet"
        answers = self._answer_prompts(model)
        source = {"training": self._training, "study": self._study, "step": step}
        buffer = io.BytesIO()
        answers.write_parquet(buffer, metadata={SOURCE: json.dumps(source)})
        name = path.stem
        overrides = [
            _WAITS,
            *self._study_overrides(),
            f"answers={quote(str(path.absolute()))}",
            f"model.name={quote(name)}",
            f"run_name={quote(f'{self._study}/{name}')}",
        ]
        try:
            Store(str(path.parent)).put(path.name, buffer.getvalue())
            self._steps = sorted({*self._steps, step})
            score(load(overrides))
            self._write_study_file(args)
        except FactsweepError as error:
            LOG.error("%s: %s The training continues; its answers go to %s.", name, error, path)

    def _answer_prompts(self, model: Any) -> pl.DataFrame:
        """The rows of a file of answers (docs/adding.md)."""
        assert self._prompts is not None, "the training has begun"
        task, rows, file_rows = self._prompts.task, self._prompts.rows, self._prompts.file_rows
        is_scored = isinstance(task, generate.Score)
        engine = Likelihood(model, device=None) if is_scored else Greedy(model, self._tokenizer)
        answered = task.answer_groups(iter([rows]), engine, self._tokenizer)
        table = pl.DataFrame([answer.row for answer in answered], infer_schema_length=None)
        names = ("prompt_id", "logprob", "n_tokens", "entity_logprob", "entity_n_tokens")
        columns = names if is_scored else ("prompt_id", "text")
        return file_rows.join(table.select(columns), on="prompt_id", maintain_order="left")

    def _study_overrides(self) -> list[str]:
        return [*self._model_overrides, *self._overrides]

    def _answers_folder(self, args: Any) -> Path:
        return Path(args.output_dir, f"factsweep-{self._study}")

    def _study_path(self) -> Path:
        folder = folders.own_folder() or Path(folders.OWN).absolute()
        return folder / "study" / f"{self._study}.yaml"

    def _check_study_file(self) -> None:
        path = self._study_path()
        if self._study in folders.files("study") and not path.is_file():
            raise InputError(f"{self._study} is a study that ships; name another.")
        if path.is_file() and not path.read_text("utf-8").startswith(_HEAD):
            raise InputError(f"{path} was not written by a training; name another study.")

    def _write_study_file(self, args: Any) -> None:
        """Write the study of all steps; of one alone there is no curve."""
        if len(self._steps) < 2:
            return
        folder = self._answers_folder(args).absolute()
        paths = ",".join(quote(str(folder / f"step-{step}.parquet")) for step in self._steps)
        study = {"runs": [*self._study_overrides(), f"answers={paths}"], "axis": "step"}
        text = _HEAD + yaml.safe_dump(study, sort_keys=False, allow_unicode=True, width=1000)
        path = self._study_path()
        Store(str(path.parent)).put(path.name, text.encode())


def _describe_model(model: Any, study: str) -> list[str]:
    """The overrides of a model that is in memory alone."""
    config = model.config.get_text_config()
    length = getattr(config, "max_position_embeddings", None) or 4096
    dtype = str(model.dtype).removeprefix("torch.")
    return [
        "model=base/any",
        f"model.id={quote(study)}",
        "model.source=absent",
        "model.architecture=decoder",
        f"model.billions_of_parameters={model.num_parameters() / 1e9:.9f}",
        f"model.max_model_len={min(length, 4096)}",
        f"model.dtype={dtype if dtype in _DTYPES else 'auto'}",
        "model.tensor_parallel=1",
    ]


def _check_whole(args: Any, model: Any) -> None:
    """Refuse weights that are spread over processes, and models that continue no text."""
    from transformers.integrations import is_deepspeed_zero3_enabled

    if args.fsdp or is_deepspeed_zero3_enabled():
        raise InputError(
            "the weights are spread over processes (FSDP or DeepSpeed ZeRO-3), where no process "
            "can answer alone; save checkpoints, and give them to factsweep study."
        )
    config = getattr(model, "config", None)
    if not hasattr(model, "generation_config") or getattr(config, "is_encoder_decoder", False):
        raise InputError(
            f"FactsweepCallback measures causal language models of transformers, and this is "
            f"{type(model).__name__}; measure its checkpoints with factsweep study."
        )


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Give back the model in the mode it was in, module by module, and all random generators."""
    import torch

    modes = [(module, module.training) for module in model.modules()]
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (collators use it)
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices):
            model.eval()
            yield
    finally:
        for module, is_training in modes:
            module.training = is_training
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
