"""Open questions with their right answers: the layouts of their authors, and tables of one's own.

Columns are recognised by their usual names in any case (`NAMES`). A file of one relation is named
after it, as EntityQuestions' P17.test.json.
"""

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from factsweep.operators.datasets import layouts
from factsweep.operators.datasets.facts import Facts, Relations, check_facts, relation_table
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty

# The names of the columns; the first one that a table has counts.
NAMES: Mapping[str, Sequence[str]] = {
    "question": ("question", "problem", "query"),
    "answers": ("possible_answers", "answers", "answer", "target", "gold", "correct_answer"),
    "aliases": ("aliases", "answer_aliases", "object_aliases"),
    "wordings": ("wordings", "paraphrases"),
    "id": ("id", "question_id", "questionid", "original_index"),
    "relation": ("relation", "prop", "topic", "category"),
    "subject": ("subject", "subj"),
    "popularity": ("popularity", "s_pop"),
    "date": ("date",),
    "answer_type": ("answer_type", "type"),
}
REQUIRED = ("question", "answers")
_SAMPLES = {"doc_id", "target", "arguments", "filter"}  # of lm-evaluation-harness
_EVERYTHING = "questions"  # the relation of questions that name none
_RELATION_FILE = re.compile(r"(P\d+)\.[^/]+")
_UNFIT = re.compile(r"[^\w-]+")
_LONGEST_ID = 60  # characters of the id of a relation
_TEMPLATE = "[X] [Y]"


class Question(NamedTuple):
    """A question: where it stands, its wordings, its right answers, and its other values."""

    place: str
    relation: str
    id: str | None
    wordings: list[str]
    answers: list[str]
    popularity: float | None
    date: str | None
    answer_type: str | None
    subject: str | None


def match_columns(columns: Sequence[str]) -> dict[str, str]:
    """The columns of a table of questions, by their content.

    >>> match_columns(["Problem", "answer", "s_pop", "urls"])
    {'question': 'Problem', 'answers': 'answer', 'popularity': 's_pop'}
    """
    column_by_name = {column.strip().casefold(): column for column in columns}
    matches = {
        name: next((column_by_name[alias] for alias in aliases if alias in column_by_name), None)
        for name, aliases in NAMES.items()
    }
    return {name: column for name, column in matches.items() if column is not None}


def is_questions(columns: Sequence[str]) -> bool:
    """Whether a table has a column of questions and one of answers."""
    return {*REQUIRED} <= match_columns(columns).keys() or {*columns} >= _SAMPLES


def facts_from_tables(tables: Mapping[str, pl.DataFrame], relations: Relations) -> Facts:
    """The facts of tables of questions, by the names of their files.

    A pair is a question, its names are its wordings, and its one object has the right answers.

    Raises:
        InputError: a column is missing, a question or its answers are, or a question stands twice
            with other answers; the message names file and row.
    """
    questions = read_questions(tables)
    labels = {_relation_id(question.relation): question.relation for question in questions}
    labels |= {name: label for name, label in (relations or {}).items() if name in labels}
    pairs, details, types = [], [], []
    numbers = dict.fromkeys(labels, 0)
    for question in questions:
        relation_id = _relation_id(question.relation)
        name = question.id or f"{numbers[relation_id]:06d}"
        numbers[relation_id] += 1
        pair_id, label = f"{relation_id}.{name}", question.answers[0]
        objects = [{"object_id": label, "labels": question.answers}]
        pairs.append((pair_id, relation_id, name, question.wordings, objects, None))
        values = question.date, None, question.popularity, None, None
        details.append((pair_id, relation_id, label, *values))
        if question.answer_type is not None:
            types.append((pair_id, relation_id, question.answer_type))
    templates = [
        (f"{relation_id}.000", relation_id, _TEMPLATE, "manual", 0, "question")
        for relation_id in labels
    ]
    extra_tables = {
        "details": _table("details", details),
        "answer_types": _table("answer_types", types),
    }
    facts = Facts(
        relation_table(labels, labels),
        _table("templates", templates),
        _table("pairs", pairs),
        {name: rows for name, rows in extra_tables.items() if not rows.is_empty()},
    )
    return check_facts(facts)


def read_questions(tables: Mapping[str, pl.DataFrame]) -> list[Question]:
    """The questions of tables, each once.

    Raises:
        InputError: as `facts_from_tables`.
    """
    return list(_without_repetitions(_questions(tables)))


def warn_of_joined_cells(tables: Mapping[str, pl.DataFrame]) -> Iterator[str]:
    """A sentence for each table and kind of cell that seems to hold several texts, and no list."""
    kinds = {"answer": ("answers", "aliases"), "wording": ("wordings",)}
    for table_name, table in tables.items():
        rows = _unfold(table)
        columns = match_columns(rows.columns)
        for noun, names in kinds.items():
            own_columns = [columns[name] for name in names if name in columns]
            joined = layouts.find_joined_cells(rows.lazy(), own_columns)
            fix = f"write a list, such as {joined[0].as_list}" if joined else ""
            for sentence in layouts.describe_joined_cells(joined, fix, noun):
                yield f"{table_name}: {sentence}"


def _table(name: str, rows: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=empty(name).schema, orient="row")


def columns_of(tables: Mapping[str, pl.DataFrame]) -> Sequence[str]:
    """The columns of the first table, those of TriviaQA's questions unfolded."""
    return _unfold(next(iter(tables.values()))).columns


def _unfold(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of a table; TriviaQA has all in one list, `Data`, and samples of logs in parts."""
    if {*table.columns} >= _SAMPLES:  # the harness's: its prompts are the questions
        prompt = pl.col("arguments").struct.field("gen_args_0").struct.field("arg_0")
        rows = table.filter(pl.col("filter") == pl.col("filter").first())
        return rows.select(question=prompt, answers="target", id=pl.col("doc_id").cast(pl.String))
    column = next((name for name in table.columns if name.casefold() == "data"), None)
    if table.height != 1 or column is None or not isinstance(table.schema[column], pl.List):
        return table
    return table.select(pl.col(column).explode()).unnest(column)


def _questions(tables: Mapping[str, pl.DataFrame]) -> Iterator[Question]:
    for name, table in tables.items():
        rows = _unfold(table)
        columns = match_columns(rows.columns)
        for required in REQUIRED:
            if required not in columns:
                raise InputError(
                    f"{name} has no column of {required}; name one of {', '.join(rows.columns)} "
                    f"{' or '.join(NAMES[required])}."
                )
        match = _RELATION_FILE.fullmatch(name.rpartition("/")[2])
        for row, cells in enumerate(rows.iter_rows(named=True)):
            values = {key: cells[column] for key, column in columns.items()}
            values = {**_metadata(cells.get("metadata")), **values}
            place = f"{name}, row {row} (counted from 0)"
            yield _question(place, values, match[1] if match else None)


def _metadata(cell: Any) -> dict[str, Any]:
    """The topic and the type of the answer, which SimpleQA has in one cell."""
    if not isinstance(cell, str) or not cell.lstrip().startswith("{"):
        return {}
    try:
        values = ast.literal_eval(cell)
    except (ValueError, SyntaxError):
        return {}
    names = {"topic": "relation", "answer_type": "answer_type"}
    return {name: values[key] for key, name in names.items() if values.get(key)}


def _question(place: str, values: Mapping[str, Any], file_relation: str | None) -> Question:
    """The question of a row."""
    wordings = [*_texts(values["question"], place), *_texts(values.get("wordings"), place)]
    answers = [*_texts(values["answers"], place), *_texts(values.get("aliases"), place)]
    for name, texts in (("question", wordings), ("right answer", answers)):
        if not texts:
            raise InputError(f"{place}: there is no {name}; fill it in or drop the row.")
    return Question(
        place,
        _text(values.get("relation")) or file_relation or _EVERYTHING,
        _text(values.get("id")),
        [*dict.fromkeys(wordings)],
        [*dict.fromkeys(answers)],
        _number(values.get("popularity"), place),
        _text(values.get("date")),
        _text(values.get("answer_type")),
        _text(values.get("subject")),
    )


def _texts(cell: Any, place: str) -> list[str]:
    """The texts of a cell: a list, a list written as a text, TriviaQA's answer, or one text."""
    if isinstance(cell, str) and cell.lstrip().startswith("{"):
        try:
            cell = json.loads(cell)
        except ValueError:
            return [cell.strip()]
    if isinstance(cell, Mapping):
        by_name = {name.casefold(): value for name, value in cell.items()}
        aliases = by_name.get("aliases") or ()
        cell = [by_name.get("value"), *([aliases] if isinstance(aliases, str) else aliases)]
    elif isinstance(cell, str) and layouts.is_list_text(cell):
        try:
            cell = layouts.parse_list(cell, "a cell", 0)
        except InputError as error:
            raise InputError(
                f"{place}: {cell[:80]!r} is no list as JSON or Python write it; correct it."
            ) from error
    values = cell if isinstance(cell, list) else [cell]
    return [text for value in values if (text := _text(value))]


def _text(value: Any) -> str | None:
    return None if value is None else str(value).strip() or None


def _number(value: Any, place: str) -> float | None:
    if _text(value) is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{place}: the popularity {value!r} is no number; correct it.")
    return number


def _relation_id(label: str) -> str:
    """A relation's label as an id that can name files.

    >>> _relation_id("Science and technology"), _relation_id("P17"), _relation_id("TV shows/films")
    ('Science-and-technology', 'P17', 'TV-shows-films')
    """
    return _UNFIT.sub("-", label).strip("-")[:_LONGEST_ID] or _EVERYTHING


def _without_repetitions(questions: Iterator[Question]) -> Iterator[Question]:
    """The questions without repetitions; questions with ids of their own all count."""
    first_by_text: dict[tuple[str, str], Question] = {}
    places: dict[tuple[str, str], str] = {}
    for question in questions:
        if question.id is not None:
            first_place = places.setdefault((question.relation, question.id), question.place)
            if first_place != question.place:
                raise InputError(
                    f"{question.place}: the id {question.id!r} stands in {first_place}, too; "
                    "give each question its own."
                )
            yield question
            continue
        key = question.relation, question.wordings[0].casefold()
        first = first_by_text.setdefault(key, question)
        if first is question:
            yield question
        elif {*first.answers} != {*question.answers}:
            raise InputError(
                f"{question.place}: the question {question.wordings[0][:80]!r} stands in "
                f"{first.place} with other answers; join them, or give each question an id."
            )
