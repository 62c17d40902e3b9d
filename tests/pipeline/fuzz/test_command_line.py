"""Whatever it is given, a command ends with a result, or with one sentence that names the fault.

Everything runs in this process, and no engine is asked: `plan` reads the configuration, the data
and the model, and `score` reads answers.
"""

import contextlib
import gzip
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.cli import main
from pipeline.config import folders
from pipeline.config.compose import composed
from pipeline.config.settings import Run, load
from pipeline.execution.plan import Plan
from tests.pipeline.fuzz import mutations
from tests.pipeline.fuzz.mutations import ODD, as_text, damaged, mutated

pytestmark = pytest.mark.timeout(600)
fuzz = settings(suppress_health_check=list(HealthCheck), deadline=None)
ROOT = Path(__file__).parents[3]
KINDS = ("jsonl", "json", "csv", "tsv")
Compute = Callable[..., Plan]


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


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what the examples write."""
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def fresh(place: Path) -> Callable[[], Path]:
    """Makes a new, empty folder for an example."""
    numbers = iter(range(10**9))

    def make() -> Path:
        folder = place / str(next(numbers))
        folder.mkdir()
        return folder

    return make


@pytest.fixture(scope="module")
def base(small: list[str], place: Path) -> list[str]:
    """The small run, greedy answers alone."""
    return [
        *small,
        "decoding.samples.n_prompts=0",
        "decoding.canary_prompts=0",
        f"artifacts={place}/artifacts",
        f"results={place}/results",
    ]


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
VERBS = ("plan", "status", "verify", "score", "model", "describe", "report", "export", "compare")


@fuzz
@given(verb=st.sampled_from(VERBS[:4]), overrides=st.lists(OVERRIDES, min_size=1, max_size=2))
def test_any_override_ends_in_a_result_or_a_sentence(
    verb: str, overrides: list[str], base: list[str]
) -> None:
    ends_well(verb, *base, *(each for each in overrides if "address" not in each))


@fuzz
@given(verb=st.sampled_from(VERBS), arguments=st.lists(st.text(max_size=8) | VALUES, max_size=3))
def test_any_arguments_end_in_a_result_or_a_sentence(
    verb: str, arguments: list[str], fresh: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fresh())
    ends_well(verb, *arguments)


@fuzz
@given(data=st.data(), verb=st.sampled_from(["plan", "describe"]))
def test_any_rows_end_in_a_result_or_a_sentence(
    data: st.DataObject,
    verb: str,
    base: list[str],
    small_rows: pl.DataFrame,
    fresh: Callable[[], Path],
) -> None:
    path = data.draw(tables(small_rows[:30:4]), label="file").written(fresh())
    if verb == "describe":
        ends_well("describe", "myriadlama-mini", "--path", str(path))
    else:
        ends_well("plan", *base, f"benchmark.path={path}")


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


@fuzz
@given(data=st.data(), verb=st.sampled_from(["plan", "describe", "catalog"]))
@pytest.mark.parametrize("name", ["kamel-mini", "probelm-mini"])
def test_any_files_of_a_layout_end_in_a_result_or_a_sentence(
    name: str, data: st.DataObject, verb: str, base: list[str], fresh: Callable[[], Path]
) -> None:
    folder = fresh()
    source = ROOT / "data_catalog/mini" / name
    for path in source.rglob("*"):
        if path.suffix in (".json", ".jsonl", ".csv"):
            File(str(path.relative_to(source)), path.read_bytes()).written(folder)
    path = data.draw(st.sampled_from(sorted(p for p in folder.rglob("*") if p.is_file())))
    path.write_bytes(data.draw(damaged(path.read_bytes()) | mutated_lines(path)))
    asked = {
        "plan": ["plan", *base, f"benchmark={name}", f"benchmark.path={folder}"],
        "describe": ["describe", name, "--path", str(folder)],
        "catalog": ["catalog", "verify", name, "--path", str(folder)],
    }
    ends_well(*asked[verb])


def mutated_lines(path: Path) -> st.SearchStrategy[bytes]:
    """A file of JSON or JSONL, a value of which is another."""
    if path.suffix == ".csv":
        return damaged(path.read_bytes())
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    dumped = mutated([json.loads(line) for line in lines]).map(
        lambda found: [json.dumps(each) for each in found] if isinstance(found, list) else ["{}"]
    )
    return dumped.map(lambda found: "\n".join(found).encode())


@pytest.fixture(scope="module")
def answers(base: list[str], compute_here: Compute) -> pl.DataFrame:
    """The answers of the small run."""
    run: Run = load(base)
    return compute_here(run).branches[0].answers.read_all("generations")


@fuzz
@given(data=st.data())
def test_any_answers_end_in_a_result_or_a_sentence(
    data: st.DataObject, answers: pl.DataFrame, base: list[str], fresh: Callable[[], Path]
) -> None:
    path = data.draw(tables(answers), label="file").written(fresh())
    ends_well("score", *base, f"answers={path}")


FILES = (
    *("config.json",) * 4,
    *("tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors"),
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with random weights."""
    from tests import tiny_models

    return tiny_models.save("llama", tmp_path_factory.mktemp("tiny") / "mine")


@fuzz
@given(data=st.data(), name=st.sampled_from(FILES), verb=st.sampled_from(["plan", "model"]))
def test_any_model_folder_ends_in_a_result_or_a_sentence(
    data: st.DataObject,
    name: str,
    verb: str,
    tiny: Path,
    base: list[str],
    fresh: Callable[[], Path],
) -> None:
    folder = fresh() / "mine"
    shutil.copytree(tiny, folder)
    content = (folder / name).read_bytes()
    broken = damaged(content)
    if name.endswith(".json"):
        broken |= mutated(json.loads(content)).map(lambda found: json.dumps(found).encode())
    (folder / name).write_bytes(data.draw(broken, label=name))
    own = [each for each in base if not each.startswith("model.")]
    if verb == "plan":
        ends_well("plan", f"model={folder}", *own)
    else:
        ends_well("model", "show", str(folder))


MODELS = ("gpt2", "smollm2-135m", "any", "encoder")
OWN = [
    *(path for path in (ROOT / "conf").glob("*/*.yaml") if path.parent.name != "model"),
    *(path for path in (ROOT / "conf/model").rglob("*.yaml") if path.stem in MODELS),
    *(ROOT / "data_catalog").glob("*-mini.yaml"),
]


@fuzz
@given(data=st.data(), path=st.sampled_from(sorted(OWN)), renamed=st.booleans())
def test_any_own_folder_ends_in_a_result_or_a_sentence(
    data: st.DataObject, path: Path, renamed: bool, base: list[str], fresh: Callable[[], Path]
) -> None:
    group = path.relative_to(ROOT / "conf" if "conf" in path.parts else ROOT).parent
    plain = json.loads(json.dumps(yaml.safe_load(path.read_text()), default=str))
    content = data.draw(damaged(path.read_bytes()) | mutated(plain).map(dumped), label="file")
    name = "mine" if renamed else path.stem
    folder = fresh()
    File(f"{group}/{name}.yaml", content).written(folder)
    asked = {
        "comparison": ["compare", "a", "b", f"results={folder}"],
        "nightly": ["nightly", name, "--unit", "cron"],
        "data_catalog": ["catalog", "verify", name],
        "benchmark": ["plan", f"benchmark={name}", base[-2]],
    }
    chosen = f"{group}/{name}".replace("/", "=", 1)
    ends_well(*asked.get(group.parts[0], ["plan", *base, chosen]), "--config-dir", str(folder))


def dumped(found: Any) -> bytes:
    return str(yaml.safe_dump(found, allow_unicode=True)).encode()
