"""How a command ends, and what it is given: overrides, and files that were changed or damaged."""

import contextlib
import gzip
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import yaml
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from factsweep.pipeline.cli import main
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.compose import composed
from tests.pipeline.fuzz import mutations
from tests.pipeline.fuzz.mutations import ODD, as_text, damaged, mutated

# An example is a whole command here, and takes a second: of many, a third.
EXAMPLES = max(10, settings.default.max_examples // 3)
fuzz = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
KINDS = ("jsonl", "json", "csv", "tsv")


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def command(*arguments: str) -> Ended:
    """Run a command in this process, with the environment as it was afterwards."""
    out, err, before = io.StringIO(), io.StringIO(), os.environ.get(folders.VARIABLE)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as stopped:  # of argparse, which refuses options and verbs
            code = int(stopped.code or 0)
        finally:
            os.environ.pop(folders.VARIABLE, None)
            os.environ.update({} if before is None else {folders.VARIABLE: before})
    return Ended(code, out.getvalue(), err.getvalue())


def ends_well(*arguments: str) -> Ended:
    """Run a command; it gives a result, or refuses in one sentence."""
    ended = command(*arguments)
    assert "Traceback" not in ended.err, ended.err
    found = ended.out and arguments[0] in ("verify", "catalog")  # what they found is their result
    if ended.code and not found and "usage: factsweep" not in ended.err:
        assert ended.code in (1, 2), ended
        first, *more = ended.err.splitlines()
        assert first.startswith("factsweep: "), ended.err
        assert first.endswith((".", "?")), ended.err
        # A table may stand below the sentence: the columns that were expected and found.
        assert not any(line.startswith("factsweep: ") for line in more), ended.err
    return ended


def names(values: Any, prefix: str = "") -> Iterator[str]:
    """The dotted names of all fields and groups of conf/."""
    for name, value in values.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from names(value, f"{prefix}{name}.")


NAMES = [*names(composed([])), "hydra", "defaults", "nope"]
VALUES = ODD.map(lambda v: v if isinstance(v, str) else json.dumps(v)) | ODD.map(repr) | st.text()
OVERRIDES = (
    st.builds("{}={}".format, st.sampled_from(NAMES), VALUES)
    | st.builds("{}{}={}".format, st.sampled_from("+~@"), st.sampled_from(NAMES), VALUES)
    | st.text(max_size=10)
)


class File(NamedTuple):
    name: str
    content: bytes

    def written(self, folder: Path) -> Path:
        """The path of the file, in a folder."""
        path = folder / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.content)
        return path


def tables(rows: pl.DataFrame) -> st.SearchStrategy[File]:
    """Files of rows that were changed before they were written, or damaged afterwards."""
    plain, file = rows.to_dicts(), io.BytesIO()
    rows.write_parquet(file)
    zipped = gzip.compress(as_text(plain, "jsonl"))
    return st.one_of(
        *(mutated(plain).map(lambda found, k=kind: written(found, k)) for kind in KINDS),
        *(damaged(as_text(plain, kind)).map(lambda c, k=kind: File(f"a.{k}", c)) for kind in KINDS),
        damaged(file.getvalue()).map(lambda content: File("a.parquet", content)),
        mutations.parquet(rows).map(lambda content: File("a.parquet", content)),
        damaged(zipped).map(lambda content: File("a.jsonl.gz", content)),
    )


def written(found: Any, kind: str) -> File:
    return File(f"a.{kind}", as_text(found if isinstance(found, list) else [], kind))


def dumped(found: Any) -> bytes:
    return str(yaml.safe_dump(found, allow_unicode=True)).encode()
