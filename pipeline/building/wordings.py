"""A table of questions with further wordings of each, which a model writes."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from factsweep.operators.construction.paraphrase import candidates
from factsweep.operators.construction.set_card import Origin
from factsweep.operators.construction.wordings import (
    REPETITION,
    find_flaws,
    is_repetition,
    wording_prompt,
)
from factsweep.operators.datasets.questions import Question, read_questions, warn_of_joined_cells
from factsweep.operators.errors import InputError
from factsweep.operators.matching.graders import Contains
from factsweep.operators.matching.normalise import BLANK, Normaliser
from factsweep.operators.wording import count
from factsweep.pipeline.building.paraphraser import Answers, Model, cache_answers
from factsweep.pipeline.building.set_folder import describe_set
from factsweep.pipeline.config.folders import OWN_QUESTIONS
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.machine.logs import Meter
from factsweep.pipeline.storage.store import Store

_BATCH = 256  # questions that a model is asked about together


def build_wordings(
    path: Path, out: Path, *, language: str, model: Model, origin: Origin | None = None
) -> Iterator[str]:
    """Write a table of questions with `n` further wordings of each; yields lines on it.

    With an `origin` its card and its Croissant file are written next to it, named after it.

    `path` is a table, a folder of tables, or a set of the catalog. The answers of the model are
    saved next to `out`; wordings that cannot stand for their question are dropped and counted.

    Raises:
        InputError: the questions cannot be read, the model does not answer, or `out` exists.
    """
    if out.suffix != ".jsonl" or out.exists():
        raise InputError(f"--out {out} must be a new file with the suffix .jsonl; name another.")
    tables = _read_tables(path)
    yield from warn_of_joined_cells(tables)
    questions = read_questions(tables)
    pipeline = BLANK if language == "en" else f"{BLANK}-{language}"
    grader = Contains(Normaliser(pipeline), language)
    wordings = [[*question.wordings] for question in questions]
    dropped, path_of_answers = Counter[str](), out.with_suffix(".asked.jsonl")
    with (
        Meter(f"wordings of {model.name}") as meter,
        cache_answers(model, path_of_answers) as answers,
    ):
        for start in range(0, len(questions), _BATCH):
            part = slice(start, start + _BATCH)
            dropped += _ask_for_wordings(wordings[part], questions[part], model, grader, answers)
            meter.show(f"{min(start + _BATCH, len(questions)):,}/{len(questions):,} questions")
    rows = (_row_without_nulls(*question) for question in zip(questions, wordings, strict=True))
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    n_new = sum(map(len, wordings)) - sum(len(question.wordings) for question in questions)
    sizes = f"{len(questions):,} questions, {n_new:,} new wordings"
    card = describe_set(
        out.stem,
        {out.name: text},
        origin,
        counts={"questions": len(questions), "new_wordings": n_new},
        n_rows=len(questions),
        splits={"default": {"test": out.name}},
    )
    files = {f"{out.stem}.{name}": content for name, content in card.items()}
    for name, content in {**files, out.name: text}.items():
        Store(str(out.parent)).put(name, content.encode())
    yield f"{out}: {sizes}; factsweep run benchmark.path={out}"
    for reason, n in dropped.most_common():
        yield f"  {count(n, 'wording')} dropped: {reason}"
    if n_short := sum(len(texts) <= model.n for texts in wordings):
        fix = "--rounds has the model asked more often"
        yield f"  {count(n_short, 'question')} with fewer than {model.n} further wordings; {fix}"


def _read_tables(path: Path) -> dict[str, pl.DataFrame]:
    name, place = (OWN_QUESTIONS, str(path)) if path.exists() else (str(path), None)
    if place is None and name not in catalog.list_names():
        raise InputError(f"{path} is no file, no folder and no set of the catalog; correct it.")
    entry = catalog.entry(name)
    if entry.reader != OWN_QUESTIONS:
        raise InputError(f"{name} is no set of questions; wordings are of questions only.")
    return dict(catalog.content_of(entry, catalog.list_files(entry, place)))


def _ask_for_wordings(
    wordings: Sequence[list[str]],
    questions: Sequence[Question],
    model: Model,
    grader: Contains,
    answers: Answers,
) -> Counter[str]:
    """Ask for wordings until each question has `n` further ones; how many were dropped, and why."""
    dropped = Counter[str]()
    for _ in range(model.max_rounds):
        short = [place for place, texts in enumerate(wordings) if len(texts) <= model.n]
        if not short:
            break
        prompts = [wording_prompt(wordings[place][0], model.n) for place in short]
        answered = zip(short, answers(prompts), strict=True)
        proposals = [(place, text) for place, answer in answered for text in candidates(answer)]
        flaws = find_flaws([(questions[place], text) for place, text in proposals], grader)
        for (place, text), flaw in zip(proposals, flaws, strict=True):
            if len(wordings[place]) > model.n:
                continue  # more than were asked for
            if reason := flaw or (REPETITION if is_repetition(text, wordings[place]) else None):
                dropped[reason] += 1
            else:
                wordings[place].append(text)
    return dropped


def _row_without_nulls(question: Question, wordings: Sequence[str]) -> dict[str, object]:
    row = {"question": wordings[0], "answers": question.answers, "wordings": [*wordings[1:]]}
    values, known_names = question._asdict(), {*row, "place"}
    return row | {n: v for n, v in values.items() if n not in known_names and v is not None}
