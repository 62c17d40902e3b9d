"""given: the answers of another system, in place of our engine's."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import gt, lt
from pathlib import Path
from typing import Any

import polars as pl

from factsweep.operators.datasets import table_files
from factsweep.operators.datasets.layouts import guess_columns
from factsweep.operators.engines.answer_text import cut_at_stops, split_thought, strip_prompt
from factsweep.operators.engines.endpoint import openai_batch
from factsweep.operators.errors import InputError, input_errors
from factsweep.operators.matching.preferred import FURTHER, read_preferences
from factsweep.operators.methods.method import GENERATE, PREFER, SCORE, Ability, PromptSetting
from factsweep.operators.prompts.chat import messages
from factsweep.operators.prompts.plausibility import PROMPT_TYPES
from factsweep.operators.schemas import empty, refuse
from factsweep.operators.wording import shorten
from factsweep.pipeline.inputs import catalog, files
from factsweep.pipeline.inputs.evaluation_logs import read_log
from factsweep.pipeline.machine import text_files
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.storage.artifact import Artifact, Recipe

SOURCE = "factsweep.source"  # a key of Parquet's metadata: a JSON object
_NOT_GIVEN = "no_answer_given"
_ASKED = "asked"  # a column: which prompts are answered
_LOGPROBS = ("logprob", "entity_logprob", "open_logprob")
_COUNTS = ("n_tokens", "entity_n_tokens")
_NO_LOGPROB = "a log-probability is at most 0: give nats, no loss or perplexity"
_ROUNDING = 1e-3  # nats that a sum of log-probabilities may be too high by
VERSION = 2  # 2: a prompt whose text stands earlier may have an answer of its own
_TEXTS_VERSION = 3  # 3: texts lose their prompt, and end at a stop
# Counts of texts by their treatment.
PROMPT_REMOVED, CUT_AT_STOP, THOUGHT_KEPT = "prompt_removed", "cut_at_stop", "thought_kept"
NOTHING_LEFT = "nothing_left"  # before the first stop
TREATED = (PROMPT_REMOVED, CUT_AT_STOP, THOUGHT_KEPT, NOTHING_LEFT)
_READING = {
    "text": pl.String,
    "thought": pl.String,
    "reason": pl.String,  # for a text that is no answer
    **dict.fromkeys(TREATED, pl.Boolean),
}
_NO_TEXT = (None, None, _NOT_GIVEN, False, False, False, False)
_THOUGHT = {
    name: pl.when(pl.col("thought").is_not_null()).then(pl.concat_list(value))
    for name, value in (
        ("texts", "thought"),
        ("n_tokens", "thought_tokens"),
        ("ended", pl.lit("unknown")),
    )
}


@dataclass(frozen=True)
class GivenAnswers:
    """Takes the answers of a file, by prompt_id.

    The metadata of a Parquet file may name what answered (`SOURCE`), which the recipe takes over.
    The file has one row per prompt: prompt_id and text. Where texts are scored (PRobELM), it has
    candidate_id, logprob (the sum over the text's tokens, nats) and n_tokens, and setting (the
    prompt type) if several are asked; entity_logprob and entity_n_tokens are optional. Where
    entities are compared (distractors), it has one row per candidate: prompt_id, entity_id, logprob
    (nats); label, n_tokens and open_logprob are optional. A text is stripped of its prompt and cut
    at a stop; if the model `thinks`, its thought moves to the table `thoughts`.
    """

    path: Path
    ability: Ability
    setting: PromptSetting
    prompts: Artifact
    stops: tuple[str, ...] = ()
    thinks: bool = False

    @cached_property
    def recipe(self) -> Recipe:
        """The content of the file, the treatment of its texts, and the prompts."""
        inputs = {"prompts": self.prompts.fingerprint}
        fields: dict[str, Any] = {"answers": catalog.checksum([self.path]), **self._read_source()}
        if self.ability != GENERATE:
            return Recipe(self.ability.answers, VERSION, fields, inputs)
        fields |= {"stop": self.stops, "thinking": self.thinks}
        return Recipe(self.ability.answers, _TEXTS_VERSION, fields, inputs)

    def _read_source(self) -> dict[str, Any]:
        """What answered, as the file says it; empty where it does not."""
        if table_files.kind(self.path) != ".parquet":
            return {}
        text = files.read_parquet_note(self.path, SOURCE)
        with input_errors(f"{SOURCE} in {self.path}", "write the file again"):
            return {} if text is None else {"source": dict(json.loads(text))}

    def make(self, artifact: Artifact) -> None:
        """Publish the answers as the shards of an answered artifact.

        Raises:
            InputError: a missing column, or an unknown or repeated prompt_id.
        """
        artifact.begin()
        table, column = self.ability.answers, self.ability.column
        further_tables = ["thoughts"] if self.thinks else []
        for shard, rows in self.by_shard():
            answered = rows.filter(pl.col(column).is_not_null()).drop("same_as")
            columns = [name for name in TREATED if name in answered.columns]
            counts = {name: n for name in columns if (n := int(answered[name].sum()))}
            answers = pl.concat([empty(table), answered], how="diagonal_relaxed")
            artifact.write(table, shard, answers, counts)
            for name in further_tables:
                artifact.write(name, shard, answered.select("prompt_id", **_THOUGHT))
        artifact.finish([table, *further_tables], made_of=[self.prompts])

    def by_shard(self) -> Iterator[tuple[str, pl.DataFrame]]:
        """Each shard of prompts (prompt_id, same_as) with its answers, or nulls.

        A text comes with its thought, the reason if it is no answer, and its treatment.
        """
        answers = self._read_answers()
        for shard in self.prompts.shards("prompts"):
            ids = self.prompts.read("prompts", shard).select("prompt_id", "same_as")
            rows = ids.join(answers, on="prompt_id", how="left", maintain_order="left")
            yield shard, self._treat_texts(shard, rows) if self.ability == GENERATE else rows

    def _treat_texts(self, shard: str, rows: pl.DataFrame) -> pl.DataFrame:
        as_turns = getattr(self.setting, "as_", None) == "turns"
        prompts = with_text(self.prompts, "prompts", shard)["text"]
        readings = [
            _NO_TEXT
            if text is None
            else self._treat_text(text, thought, messages(prompt, as_turns=as_turns))
            for text, thought, prompt in zip(rows["text"], rows["thought"], prompts, strict=True)
        ]
        texts = rows.with_columns(pl.DataFrame(readings, schema=_READING, orient="row"))
        if (batch := self.batch) is None:
            return texts.with_columns(detail=pl.lit(None, pl.String))
        replace = partial(pl.col("prompt_id").replace_strict, return_dtype=pl.String)
        reason = replace([*batch.failed], [*batch.failed.values()], default=pl.col("reason"))
        detail = replace([*batch.details], [*batch.details.values()], default=None)
        return texts.with_columns(reason=reason, detail=detail)

    def _treat_text(
        self, text: str, thought: str | None, turns: Sequence[Mapping[str, str]]
    ) -> tuple[Any, ...]:
        """The values of `_READING` for a text."""
        answer = strip_prompt(text, *(turn["content"] for turn in turns))
        is_prompt_removed = len(answer) < len(text)
        parts = split_thought(answer)
        has_thought = parts is None or parts[0] != ""
        if has_thought and self.thinks:
            thought, answer = parts or (None, "")
            if not answer.strip():
                reason = "thought_not_ended" if parts is None else "no_text"
                return None, thought, reason, is_prompt_removed, False, False, False
        before_stop = cut_at_stops(answer, self.stops)
        is_cut = answer[len(before_stop) :].strip() != ""
        keeps_thought = has_thought and not self.thinks
        is_empty = is_cut and not before_stop.strip()
        return before_stop, thought, None, is_prompt_removed, is_cut, keeps_thought, is_empty

    def check(self) -> None:
        """Refuse a file without its columns, or of answers to other prompts.

        Raises:
            InputError: a missing column, or answers to other prompts.
        """
        if self._log_rows is not None:  # its prompts are compared when they have been written
            return
        with input_errors(str(self.path), "check its rows and their quotation marks"):
            rows, columns = self._scan_rows(), self._required_columns()
            _check_columns(self.path, rows, columns)
            self._check_asked(rows)

    def warnings(self) -> Iterator[str]:
        """A sentence if the file does not name the prompts that it answers."""
        if self._log_rows is None and _ASKED not in self._scan_rows().collect_schema():
            yield (
                f"{self.path} does not say what it answers, and is taken for answers to "
                f"{asked_name(self.setting, self.prompts)}; keep the column asked of what "
                "`factsweep prompts` writes."
            )

    def _scan_rows(self) -> pl.LazyFrame:
        texts = ("prompt_id", _ASKED, "text", "candidate_id", "entity_id", "setting", "label")
        rows = self.batch.rows.lazy() if self.batch else files.scan([self.path], texts=texts)
        names = rows.collect_schema().names()
        return rows.rename(guess_columns(names, (*texts, *_LOGPROBS, *_COUNTS)))

    def _required_columns(self) -> dict[str, str]:
        """The columns that the file must have, with their kinds."""
        if self.ability == GENERATE:
            return {"prompt_id": "text", "text": "text"}
        if self.ability == PREFER:
            return {"prompt_id": "text", "entity_id": "text", "logprob": "numbers"}
        columns = {"candidate_id": "text", "logprob": "numbers", "n_tokens": "numbers"}
        return columns if self.setting.name in PROMPT_TYPES else {**columns, "setting": "text"}

    def _check_asked(self, rows: pl.LazyFrame) -> None:
        if _ASKED not in rows.collect_schema():
            return
        expected, value = asked_name(self.setting, self.prompts), pl.col(_ASKED).cast(pl.String)
        wrong = rows.select(value).filter(pl.col(_ASKED).ne_missing(expected))
        for (name,) in wrong.head(1).collect().iter_rows():
            raise InputError(
                f"{self.path} answers {name or 'nothing that it names'}, not {expected}; give "
                "prompt=, seed= and benchmark= as for its prompts."
            )

    def _read_answers(self) -> pl.DataFrame:
        self.check()
        readers = {PREFER: self._read_preferences, SCORE: self._read_scores}
        read = readers.get(self.ability, self._read_texts)
        # Columns are read lazily: damage further on is found only here.
        with input_errors(str(self.path), "check its rows and their quotation marks"):
            answers = read(self._scan_rows())
        if answers.is_empty():
            raise InputError(f"{self.path} has no answers; give one row for each that there is.")
        ids = "candidate_id and setting" if self.ability == SCORE else "prompt_id"
        prompt_ids = pl.concat(self.prompts.each("prompts", ("prompt_id",)))["prompt_id"]
        prompt_id, column = pl.col("prompt_id"), self.ability.column
        empty_text = ' (`""` in CSV if it is empty)' if column == "text" else ""
        fix = f"give one{empty_text} or leave the row out"
        no_prompt = "it is no prompt of this benchmark, setting and seed; check prompt= and seed="
        problems = {
            f"its {column} is null; {fix}": pl.col(column).is_null(),
            f"its {ids} stands twice; leave one out": ~prompt_id.is_first_distinct(),
            no_prompt: ~prompt_id.is_in(prompt_ids.implode(), nulls_equal=True),
        }
        row = ", row {row} (counted from 0), {prompt_id!r}: "
        sentences = {f"{row}{problem}.": is_wrong for problem, is_wrong in problems.items()}
        refuse(answers.with_row_index("row"), sentences, ["row", "prompt_id"], str(self.path))
        catalog.check_unchanged([self.path], self.recipe.fields["answers"])
        return answers

    @cached_property
    def _log_rows(self) -> pl.DataFrame | None:
        """The answers in another tool's log; null: the file is none."""
        return read_log(self.path) if self.ability == GENERATE else None

    @cached_property
    def batch(self) -> openai_batch.Answers | None:
        """The output of a batch, or the answers in another tool's log; null: the file is neither.

        Raises:
            InputError: a line does not belong to our batch, or answers another prompt.
        """
        if self._log_rows is not None:
            return openai_batch.Answers(self._match_log(self._log_rows), empty("thoughts"), {}, {})
        if table_files.kind(self.path) not in (".jsonl", ".ndjson"):
            return None
        lines = text_files.text(self.path).split("\n")
        if not openai_batch.is_output(lines[0]):
            return None
        try:
            batch = openai_batch.answers(lines, thinks=self.thinks)
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from error
        if batch.failed:
            counts = sorted(Counter(batch.failed.values()).items())
            reasons = ", ".join(f"{reason} {n:,}" for reason, n in counts)
            LOG.warning("%s: requests of the batch without an answer: %s.", self.path, reasons)
        return batch

    def _match_log(self, logged: pl.DataFrame) -> pl.DataFrame:
        """The answers of a log by prompt_id: that of the log, or of the prompt of the same text.

        A log's prompt may have more text around ours, as a chat's template writes it.
        """
        as_turns = getattr(self.setting, "as_", None) == "turns"
        by_id, by_text = (
            logged.filter(pl.col("prompt_id").is_not_null() == has_id) for has_id in (True, False)
        )
        parts = [logged.clear()]
        for shard in self.prompts.shards("prompts"):
            prompts = with_text(self.prompts, "prompts", shard)
            turns = (messages(text, as_turns=as_turns)[-1]["content"] for text in prompts["text"])
            own = prompts.select("prompt_id", "same_as", own=pl.Series(turns, dtype=pl.String))
            same_id = by_id.join(own, on="prompt_id")
            parts.append(same_id.filter(pl.col("prompt").str.contains(pl.col("own"), literal=True)))
            first = own.filter(pl.col("same_as").is_null())
            same_text = by_text.drop("prompt_id").join(first, left_on="prompt", right_on="own")
            parts += [same_text, self._match_log_questions(by_text, prompts)]
        answered = pl.concat(part.select(logged.columns) for part in parts)
        unknown = logged.join(answered, on=["place", "prompt"], how="anti").head(1)
        for place, _, prompt, _ in unknown.iter_rows():
            raise InputError(
                f"{self.path}, {place}: its prompt {shorten([prompt])!r} is none of "
                f"{asked_name(self.setting, self.prompts)}; give prompt=, seed= and benchmark= as "
                "they were asked."
            )
        asked = pl.lit(asked_name(self.setting, self.prompts))
        return answered.select("prompt_id", "text", asked=asked)

    def _match_log_questions(self, logged: pl.DataFrame, prompts: pl.DataFrame) -> pl.DataFrame:
        """The answers of a log whose whole prompt is the question of one of ours."""
        words = getattr(self.setting, "words", None)
        if words is None or self.setting.name != "questions":
            return logged.clear()
        question = pl.col("query").str.strip_prefix(words.asks).str.strip_suffix(words.answers)
        own = prompts.select("prompt_id", question=question.str.strip_chars())
        rows = logged.drop("prompt_id").with_columns(question=pl.col("prompt").str.strip_chars())
        return rows.join(own, on="question")

    def _read_texts(self, rows: pl.LazyFrame) -> pl.DataFrame:
        texts = rows.select(pl.col("prompt_id", "text").cast(pl.String)).collect()
        if self.batch is None:
            return texts.with_columns(thought=pl.lit(None, pl.String), thought_tokens=0)
        thoughts = self.batch.thoughts.select(
            "prompt_id",
            thought=pl.col("texts").list.first(),
            thought_tokens=pl.col("n_tokens").list.first(),
        )
        return texts.join(thoughts, on="prompt_id", how="left", maintain_order="left")

    def _read_preferences(self, rows: pl.LazyFrame) -> pl.DataFrame:
        extra_columns = (name for name in FURTHER if name in rows.collect_schema())
        sets = pl.concat(self.prompts.each("candidate_sets")).unique(["candidates_id", "entity_id"])
        n = self.prompts.recipe.fields["setting"]["n"]
        scores = rows.select(*self._required_columns(), *extra_columns).collect()
        _check_numbers(self.path, scores)
        prompts = pl.concat(self.prompts.each("prompts"))
        try:
            return read_preferences(scores.drop_nulls("logprob"), prompts, sets, n)
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from error

    def _read_scores(self, rows: pl.LazyFrame) -> pl.DataFrame:
        several = self.setting.name not in PROMPT_TYPES
        setting = pl.col("setting") if several else pl.lit(self.setting.name)
        prompt_id = pl.format("{}.{}", "candidate_id", setting).alias("prompt_id")
        optional = [n for n in ("entity_logprob", "entity_n_tokens") if n in rows.collect_schema()]
        scores = rows.select(prompt_id, "logprob", "n_tokens", *optional).collect()
        _check_numbers(self.path, scores)
        return scores


def asked_name(setting: PromptSetting, prompts: Artifact) -> str:
    """The value of an answer's column `asked`: the setting, the seed and the prompts' artifact."""
    title = " ".join(filter(None, (setting.name, setting.variant)))
    return f"{title}, seed {prompts.recipe.fields['seed']}, prompts {prompts.fingerprint}"


@dataclass(frozen=True)
class UnansweredPrompts:
    """Finds the prompts without an answer, as error rows; a batch has the reasons."""

    given: GivenAnswers

    @property
    def recipe(self) -> Recipe:
        """The content of the file, and the prompts."""
        recipe = self.given.recipe
        return Recipe("admitted", VERSION, recipe.fields, recipe.inputs)

    def make(self, artifact: Artifact) -> None:
        """Publish an error row for each prompt without an answer of its own or of its text."""
        artifact.begin()
        is_absent = pl.col(self.given.ability.column).is_null() & pl.col("same_as").is_null()
        default = {"reason": pl.lit(_NOT_GIVEN), "detail": pl.lit(None, pl.String)}
        for shard, rows in self.given.by_shard():
            missing = {name: value for name, value in default.items() if name not in rows.columns}
            absent = rows.filter(is_absent).with_columns(**missing)
            errors = absent.select("prompt_id", "reason", "detail", stage=pl.lit("score"))
            artifact.write("errors", shard, errors)
        artifact.finish(["errors"], made_of=[self.given.prompts])


def _check_numbers(path: Path, rows: pl.DataFrame) -> None:
    for columns, is_beyond, limit, rule in (
        (_LOGPROBS, gt, _ROUNDING, _NO_LOGPROB),
        (_COUNTS, lt, 0, "a number of tokens is at least 0"),
    ):
        for column in (name for name in columns if name in rows.columns):
            values = rows[column].cast(pl.Float64)
            is_wrong = (values.is_nan() | is_beyond(values, limit)).fill_null(value=False)
            for row in is_wrong.arg_true().head(1):
                raise InputError(
                    f"{path}, row {row} (counted from 0): its {column} is {rows[column][row]}; "
                    f"{rule}."
                )


def _check_columns(path: Path, rows: pl.LazyFrame, kinds: Mapping[str, str]) -> None:
    schema = rows.collect_schema()
    for column, kind in kinds.items():
        dtype = schema.get(column)
        if dtype is None:
            raise InputError(
                f"{path}: column {column} must be {kind}, found nothing; add it, or rename one of "
                f"{', '.join(schema)}."
            )
        is_fit = dtype in (pl.String, pl.Categorical, pl.Enum, pl.Null)
        if kind == "numbers":
            is_fit = dtype.is_numeric() or dtype == pl.Null
        if not is_fit:
            fix = f"write its values as {kind}"
            raise InputError(f"{path}: column {column} must be {kind}, found {dtype}; {fix}.")
