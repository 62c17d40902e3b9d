"""Paraphrases of a model; each answer is saved on arrival, so that none is requested twice."""

import fcntl
import json
import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import polars as pl

from factsweep.operators.construction.paraphrase import (
    PARAPHRASES,
    Ask,
    AskAll,
    ask_paraphrases,
    collect_sentences,
)
from factsweep.operators.errors import InputError
from factsweep.pipeline.machine.logs import Meter

_FIELDS = ("model", "prompt", "text")
_AT_ONCE = 8  # requests to an endpoint
Answers = Callable[[Sequence[str]], list[str]]  # of prompts, in their order


@dataclass(frozen=True)
class Model:
    """A model to ask, and how often: `ask_all` is called once a round."""

    name: str
    ask_all: AskAll
    n: int
    max_rounds: int
    hints: dict[str, str] = field(default_factory=dict)


def ask_at_once(ask: Ask, prompts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Ask an endpoint several prompts at a time: AskAll.

    Raises:
        InputError: a prompt has no answer; the requests under way are answered first.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        futures = {pool.submit(ask, prompt): place for place, prompt in enumerate(prompts)}
        try:
            yield from _answers_as_completed(futures)
        finally:
            pool.shutdown(cancel_futures=True)


def _answers_as_completed(futures: Mapping[Future[str], int]) -> Iterator[tuple[int, str]]:
    failure: InputError | None = None
    for future in as_completed(futures):
        try:
            yield futures[future], future.result()
        except InputError as error:
            failure = failure or error
            for waiting in futures:
                waiting.cancel()
        except CancelledError:
            continue
    if failure is not None:
        raise failure


def request_paraphrases(model: Model, manual: pl.DataFrame, path: Path) -> pl.DataFrame:
    """The model's paraphrases (PARAPHRASES) of manual templates (MANUAL).

    Its answers are appended to the file `path`; a second run reads them from there, in their order.

    Raises:
        InputError: no answer of the model, other content in the file, or a second run on it.
    """
    rows: list[tuple[str, str, str]] = []
    limits = {"n": model.n, "max_rounds": model.max_rounds}
    with Meter(f"paraphrases of {model.name}") as meter, cache_answers(model, path) as answers:
        paraphrases = ask_paraphrases(_ask_singly(answers), manual, **limits, hints=model.hints)
        for n_templates, template_paraphrases in enumerate(paraphrases, start=1):
            rows += template_paraphrases
            meter.show(f"{n_templates}/{manual.height} templates, {len(rows):,} paraphrases")
    return pl.DataFrame(rows, PARAPHRASES, orient="row")


def request_templates(model: Model, prompts: Sequence[str], path: Path) -> list[list[str]]:
    """The model's templates for each prompt, at most `n`; answers are saved, too.

    Raises:
        InputError: as `request_paraphrases`.
    """
    limits = model.n, model.max_rounds
    with cache_answers(model, path) as answers:
        ask = _ask_singly(answers)
        return [collect_sentences(ask, prompt, set(), *limits) for prompt in prompts]


@contextmanager
def cache_answers(model: Model, path: Path) -> Iterator[Answers]:
    """The model, whose answers are taken from the file as long as it has any."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"another run is writing {path}; wait for it, or choose another --out."
            ) from error
        saved_answers = _read_saved_answers(file, path, model.name)

        def answers(prompts: Sequence[str]) -> list[str]:
            n_saved = {prompt: len(saved_answers[prompt]) for prompt in prompts}
            missing = Counter(prompts) - Counter(n_saved)
            new_prompts = [*missing.elements()]
            try:
                for place, text in model.ask_all(new_prompts) if new_prompts else ():
                    line = dict(zip(_FIELDS, (model.name, new_prompts[place], text), strict=True))
                    file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
                    file.flush()
                    os.fsync(file.fileno())  # a crash of the machine leaves it
                    saved_answers[new_prompts[place]].append(text)
            except InputError as error:
                if not file.tell():
                    raise
                raise InputError(
                    f"{str(error).rstrip('.')}; its answers so far are in {path}, "
                    "and the same command resumes from there."
                ) from error
            return [saved_answers[prompt].popleft() for prompt in prompts]

        try:
            yield answers
        finally:
            if not file.tell():
                path.unlink()


def _ask_singly(answers: Answers) -> Ask:
    return lambda prompt: answers([prompt])[0]


def _read_saved_answers(file: IO[bytes], path: Path, model: str) -> defaultdict[str, deque[str]]:
    """The answers of the model in the file, by prompt; an incomplete last line is dropped."""
    file.seek(0)
    content = file.read()
    n_bytes = content.rfind(b"\n") + 1
    file.truncate(n_bytes)
    file.seek(0, os.SEEK_END)
    answers: defaultdict[str, deque[str]] = defaultdict(deque)
    for number, line in enumerate(content[:n_bytes].splitlines(), start=1):
        row: Any = None
        with suppress(ValueError):
            row = json.loads(line)
        if not isinstance(row, dict) or not all(isinstance(row.get(n), str) for n in _FIELDS):
            raise InputError(
                f"{path}, line {number}: no answer of a model ({', '.join(_FIELDS)}); "
                "drop the line, or move the file away to ask again."
            )
        if row["model"] == model:
            answers[row["prompt"]].append(row["text"])
    return answers
