"""Paraphrases asked of a model, every answer kept on arrival: none is asked for twice."""

import fcntl
import json
import os
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import polars as pl

from factsweep.operators.construction.paraphrase import PARAPHRASES, Ask, paraphrased, until_enough
from factsweep.operators.errors import InputError
from factsweep.pipeline.machine.logs import Meter

_FIELDS = ("model", "prompt", "text")


@dataclass(frozen=True)
class Model:
    """Who is asked, and how often: `ask` is called once a round."""

    name: str
    ask: Ask
    n: int
    max_rounds: int
    hints: dict[str, str] = field(default_factory=dict)


def asked(model: Model, manual: pl.DataFrame, kept: Path) -> pl.DataFrame:
    """The model's paraphrases (PARAPHRASES) of manual templates (MANUAL).

    Its answers are appended to `kept`, one line each. What it holds already is taken from it, in
    its order, so that a second run resumes where the first stopped.

    Raises:
        InputError: the model gives no answer, `kept` holds something else, or another run has it.
    """
    rows: list[tuple[str, str, str]] = []
    often = {"n": model.n, "max_rounds": model.max_rounds}
    with Meter(f"paraphrases of {model.name}") as meter, _remembering(model, kept) as ask:
        found = paraphrased(ask, manual, **often, hints=model.hints)
        for n, mine in enumerate(found, start=1):
            rows += mine
            meter.show(f"{n}/{manual.height} templates, {len(rows):,} paraphrases")
    return pl.DataFrame(rows, PARAPHRASES, orient="row")


def proposed(model: Model, prompts: Sequence[str], kept: Path) -> list[list[str]]:
    """The model's templates for each prompt, at most `n`; answers are kept as those of `asked`.

    Raises:
        InputError: as `asked`.
    """
    with _remembering(model, kept) as ask:
        return [until_enough(ask, each, set(), model.n, model.max_rounds) for each in prompts]


@contextmanager
def _remembering(model: Model, kept: Path) -> Iterator[Ask]:
    """The model, whose answers are taken from the file as long as it has any."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.open("a+b") as file:
        _hold(file, kept)
        told = _told(file, kept, model.name)

        def ask(prompt: str) -> str:
            if told[prompt]:
                return told[prompt].popleft()
            try:
                text = model.ask(prompt)
            except InputError as error:
                if not file.tell():
                    raise
                raise InputError(
                    f"{str(error).rstrip('.')}; its answers so far are in {kept}, "
                    "and the same command resumes from there."
                ) from error
            line = dict(zip(_FIELDS, (model.name, prompt, text), strict=True))
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            return text

        try:
            yield ask
        finally:
            if not file.tell():
                kept.unlink()


def _hold(file: IO[bytes], kept: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InputError(
            f"another run is writing {kept}; wait for it, or choose another --out."
        ) from error


def _told(file: IO[bytes], kept: Path, model: str) -> defaultdict[str, deque[str]]:
    """The answers that the file has of the model, by prompt; an incomplete last line is dropped."""
    file.seek(0)
    content = file.read()
    whole = content.rfind(b"\n") + 1
    file.truncate(whole)
    file.seek(0, os.SEEK_END)
    found: defaultdict[str, deque[str]] = defaultdict(deque)
    for number, line in enumerate(content[:whole].splitlines(), start=1):
        said: Any = None
        with suppress(ValueError):
            said = json.loads(line)
        if not isinstance(said, dict) or not all(isinstance(said.get(n), str) for n in _FIELDS):
            raise InputError(
                f"{kept}, line {number}: no answer of a model ({', '.join(_FIELDS)}); "
                "drop the line, or move the file away to ask again."
            )
        if said["model"] == model:
            found[said["prompt"]].append(said["text"])
    return found
