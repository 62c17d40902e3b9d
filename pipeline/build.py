"""build: make a data set, in the layout that its reader reads."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from operators.construction import kamel
from operators.construction.kamel import Sizes
from operators.datasets.kamel import files_from_facts, questions_of
from operators.errors import InputError
from pipeline.files import scan, text


def build_kamel(
    triples: Path,
    labels: Path,
    questions: Path,
    out: Path,
    *,
    seed: int,
    sizes: Sizes,
    max_answers: int,
) -> Iterator[str]:
    """Write a set like KAMEL into the new folder `out`; says what was made and what left out.

    `triples` and `labels` are Parquet or JSONL files with the columns TRIPLES and LABELS of
    operators.construction.kamel, `questions` has lines as `P36, What is the capital of [S]?`.

    Raises:
        InputError: a file is missing or unfit, no relation is left, or `out` is there already.
    """
    _check_new(out)
    built = kamel.build(
        _rows(triples),
        _rows(labels),
        questions_of(str(questions), _text(questions)),
        seed=seed,
        sizes=sizes,
        max_answers=max_answers,
    )
    _publish(out, files_from_facts(built.facts))
    yield f"{out}: {built.facts.relations.height} relations, {built.facts.pairs.height:,} queries"
    for relation_id, unit, reason, count in built.dropped.iter_rows():
        what = unit if count == 1 else {"triple": "triples", "query": "queries"}[unit]
        yield f"  {relation_id}: {count:,} {what} left out, {reason.replace('_', ' ')}"


def _check_new(out: Path) -> None:
    if out.exists():
        raise InputError(f"--out {out} is there already; name a new folder.")


def _rows(path: Path) -> pl.DataFrame:
    _check_file(path)
    return scan([path]).collect()


def _text(path: Path) -> str:
    _check_file(path)
    return text(path)


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{path} is no file; give one.")


def _publish(out: Path, files: Mapping[str, str]) -> None:
    """Write a folder that is there whole or not at all."""
    aside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        for name, content in files.items():
            path = aside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        aside.rename(out)
    except OSError as error:
        raise InputError(
            f"{out} cannot be written ({error}); make room or choose another."
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
