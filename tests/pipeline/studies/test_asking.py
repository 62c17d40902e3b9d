"""The order in which the runs of a study are computed, and whose weights are there meanwhile.

What would compute them is replaced; the hub is one on loopback.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from factsweep.operators.errors import DecodingError, InputError
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs.hub import Repository, fetch
from factsweep.pipeline.studies import asking
from factsweep.pipeline.studies.asking import Shelf
from factsweep.pipeline.studies.study import Member, Study, study
from tests.messages import naming
from tests.pipeline.inputs.hub_server import COMMIT, Hub, serving
from tests.pipeline.inputs.hub_server import ask as ask_hub

SIZE = 300_000
ROOM = 2.2 * SIZE / 2**30

FAKE = (
    "model=endpoint",
    "model.endpoint=http://127.0.0.1:9/v1",
    "decoding.engine=fake",
    "prompt=zero-shot",
    "benchmark.relations=[P36,P30]",
    "benchmark.names_per_subject=1",
)


@pytest.fixture
def run_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs in the order in which they were computed, each with its control.

    Those that are asked in full have results; the model `bea` does not load.
    """
    names: list[str] = []

    def compute(run: Run) -> None:
        control = f" by {run.control.removeprefix('some/')[:3]}" if run.control else ""
        names.append(f"{run.name.removeprefix('some/')[:3]}{control}")
        if run.budget is None:
            Path(run.folder).mkdir(parents=True)
            Path(run.folder, "run.json").touch()
        if run.model.id == "bea":
            raise DecodingError("it does not load.")

    monkeypatch.setattr(asking, "compute", compute)
    monkeypatch.setattr(asking, "estimate", compute)
    return names


def ask(folder: Path, *overrides: str, **fields: Any) -> list[str]:
    places = [f"artifacts={folder}/artifacts", f"results={folder}/results"]
    failures = asking.ask(study("some", [*FAKE, *places, *overrides], **fields))
    return [failure.label for failure in failures]


def test_study_computes_the_ends_first_and_a_failed_run_ends_nothing_else(
    tmp_path: Path, run_names: list[str]
) -> None:
    assert ask(tmp_path, "model.id=ada,bea,cia") == ["bea"]
    assert run_names == ["cia", "ada", "bea"]


def test_study_computes_controls_before_the_runs_of_a_budget(
    tmp_path: Path, run_names: list[str]
) -> None:
    assert ask(tmp_path, "model.id=ada,bea,cia,dea", "budget=40%", full=2) == ["bea"]
    assert run_names == ["dea", "ada", "bea by ada", "cia by dea"]


@pytest.fixture
def hub(
    make_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Hub]:
    """A hub with four models."""
    files = {path.name: path.read_bytes() for path in make_model("tiny").iterdir()}
    repositories = {
        f"someone/{name}": {**files, "model.safetensors": os.urandom(SIZE)} for name in "abcd"
    }
    with serving(Hub(repositories)) as hub:
        ask_hub(hub, monkeypatch, tmp_path / "hub")
        yield hub


def model(name: str) -> Model:
    return load(["model.source=hub", f"model.id=someone/{name}", "model.revision=main"]).model


def there(tmp_path: Path) -> str:
    """The models whose weights are on the disk, and whose other files are, with or without."""
    found = {path.parents[2].name[-1] for path in (tmp_path / "hub").rglob("*.safetensors")}
    blobs = [path for path in (tmp_path / "hub").rglob("blobs/*") if path.stat().st_size >= SIZE]
    assert len(blobs) == len(found)
    return "".join(sorted(found))


def test_what_was_fetched_goes_for_what_comes_and_what_others_fetched_stays(
    hub: Hub, tmp_path: Path
) -> None:
    fetch(Repository("someone/d", "main", "model"), print)  # as another program has
    one, shelf = Shelf(ROOM / 2), Shelf(ROOM)
    one.bring(model("a"), model("b"))
    one.bring(model("d"))  # after b, for which there is no room while a is asked
    assert there(tmp_path) == "ad"
    shelf.bring(model("a"), model("b"))
    shelf.bring(model("d"))
    assert there(tmp_path) == "abd"
    shelf.bring(model("b"), model("c"))
    shelf.bring(model("c"), model("d"))
    assert there(tmp_path) == "bcd"
    assert (tmp_path / f"hub/models--someone--a/snapshots/{COMMIT}/config.json").exists()
    shelf.bring(model("d"), model("a"))
    Shelf(ROOM).bring(model("a"))  # a study that resumes knows what the one before it fetched
    assert there(tmp_path) == "acd"
    (weights,) = (tmp_path / "hub/models--someone--a").rglob("*.safetensors")
    shelf._make_room("someone/a@main", {str(weights): SIZE}, None)  # another fetched it meanwhile
    assert there(tmp_path) == "acd"
    hub.repositories.pop("someone/b")
    shelf.bring(model("b"))  # is for its run to say
    hub.repositories["someone/b"] = {"model.safetensors": os.urandom(3 * SIZE)}
    with pytest.raises(InputError, match=naming("cluster.weights_gib", "someone/b", "raise")):
        shelf.bring(model("b"))
    assert there(tmp_path) == "d"


def test_study_fetches_the_next_while_one_is_asked(
    hub: Hub, small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def measure(_study: Study, member: Member, _run: Run) -> None:
        assert member.run.model.id[-1] in there(tmp_path)
        seen.append(member.run.model.id[-1])

    monkeypatch.setattr(asking, "_measure", measure)
    rest = [each for each in small if not each.startswith("model.")]
    ids = "model.id=someone/a,someone/b,someone/c"
    where = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    given = [*rest, *where, "model.source=hub", "model.revision=main", ids]
    assert asking.ask(study("many", [*given, f"cluster.weights_gib={ROOM}"])) == []
    assert seen == ["c", "a", "b"]
    assert len(there(tmp_path)) == 2
    assert hub.downloads["model.safetensors"] == 3
