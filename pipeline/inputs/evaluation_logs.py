"""Answers in the logs of other tools: lm-evaluation-harness's samples, and Inspect's logs.

Both are read as a table: place (where it stands), prompt_id (null: the log has none), prompt, text.
"""

import json
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile, ZipInfo

import polars as pl
import pyarrow as pa

from factsweep.operators.datasets import table_files
from factsweep.operators.errors import DamagedFileError, InputError, input_errors
from factsweep.pipeline.machine import text_files

_SCHEMA = dict.fromkeys(("place", "prompt_id", "prompt", "text"), pl.String)
_SAMPLE = {"doc", "arguments", "resps", "filter"}  # fields of a line of the harness
_ZSTD = 93  # a method of compression that zipfile reads from Python 3.14 on
_ATTACHMENT = "attachment://"
_HEAD = 512  # characters of a log of Inspect, in which `eval` begins
Row = tuple[str, str | None, str, str]


def read_log(path: Path) -> pl.DataFrame | None:
    """The answers in a log; null: the file is none.

    Raises:
        InputError: the log has no texts, or a part of it is missing.
        DamagedFileError: it cannot be read.
    """
    suffix, rows = table_files.kind(path), None
    with input_errors(str(path), "write the log again"):
        if suffix == ".eval":
            rows = _inspect_rows(_archived_samples(path), path)
        elif suffix in table_files.JSON:
            content = text_files.text(path)
            if _parse_object(content.partition("\n")[0]).keys() >= _SAMPLE:
                rows = _harness_rows(content, path)
            elif '"eval"' in content[:_HEAD] and "samples" in (log := _parse_object(content)):
                rows = _inspect_rows(log["samples"], path)
        return None if rows is None else pl.DataFrame(list(rows), _SCHEMA, orient="row")


def _parse_object(text: str) -> Mapping[str, Any]:
    """The fields of a JSON object; none of another text."""
    try:
        content = json.loads(text)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _harness_rows(content: str, path: Path) -> Iterator[Row]:
    """The answers of samples JSONL; where a document has several filters, under the first."""
    first_filter = None
    for number, line in enumerate(content.split("\n")):
        if not line:
            continue
        place, sample = f"line {number} (counted from 0)", json.loads(line)
        if not sample.keys() >= _SAMPLE:
            raise InputError(f"{path}, {place}: no sample of lm-evaluation-harness; drop it.")
        first_filter = sample["filter"] if first_filter is None else first_filter
        if sample["filter"] != first_filter:
            continue
        if len(sample["arguments"]) != 1 or not isinstance(text := sample["resps"][0][0], str):
            raise InputError(
                f"{path}, {place}: it compares answers and has no text; give the samples of a "
                "task whose output_type is generate_until."
            )
        prompt = sample["arguments"]["gen_args_0"]["arg_0"]
        yield place, sample["doc"].get("prompt_id"), prompt, text


def _archived_samples(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with ZipFile(path) as archive:
            for entry in archive.infolist():
                if entry.filename.startswith("samples/"):
                    yield json.loads(_read_entry(archive, entry))
    except (BadZipFile, pa.ArrowException) as error:
        raise DamagedFileError(
            f"{path} is no whole log of Inspect ({error}); copy it again."
        ) from error


def _read_entry(archive: ZipFile, entry: ZipInfo) -> bytes:
    """A file of an archive, which Inspect compresses by zstd."""
    if entry.compress_type != _ZSTD:
        return archive.read(entry)
    file: Any = archive.fp
    file.seek(entry.header_offset + 26)
    n_name, n_extra = (int.from_bytes(file.read(2), "little") for _ in range(2))
    file.seek(n_name + n_extra, 1)
    packed = BytesIO(file.read(entry.compress_size))
    return bytes(pa.input_stream(packed, compression="zstd").read())


def _inspect_rows(samples: Any, path: Path) -> Iterator[Row]:
    """The answers of the first epoch; of our own logs, all of a fact's."""
    for sample in samples:
        place = f"sample {sample['id']}"
        if sample.get("epoch", 1) != 1 or sample.get("error"):
            continue
        if not isinstance(sample.get("input"), (str, list)):
            raise InputError(f"{path}, {place}: it has no input; give a whole log.")
        prompt = ""
        for turn in sample["messages"]:
            if turn["role"] == "user":
                prompt = _text_of_turn(turn, sample)
            prompt_id = (turn.get("metadata") or {}).get("prompt_id")
            if turn["role"] == "assistant" and prompt_id is not None:
                yield place, prompt_id, prompt, _text_of_turn(turn, sample)
        if not any("prompt_id" in (turn.get("metadata") or {}) for turn in sample["messages"]):
            prompt_id = (sample.get("metadata") or {}).get("prompt_id")
            yield place, prompt_id, prompt, _resolve(sample["output"]["completion"], sample)


def _text_of_turn(turn: Mapping[str, Any], sample: Mapping[str, Any]) -> str:
    """The text of a turn, without its reasoning."""
    content = turn["content"]
    if isinstance(content, str):
        return _resolve(content, sample)
    parts = (part["text"] for part in content if part["type"] == "text")
    return "".join(_resolve(part, sample) for part in parts)


def _resolve(text: str, sample: Mapping[str, Any]) -> str:
    if not text.startswith(_ATTACHMENT):
        return text
    return str(sample["attachments"][text.removeprefix(_ATTACHMENT)])
