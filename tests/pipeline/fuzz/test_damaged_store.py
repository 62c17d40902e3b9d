"""A store that was harmed in any way is read by every verb: a result, or one sentence."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline import damage
from tests.pipeline.damage import Harm
from tests.pipeline.fuzz.ends import command, ends_well, fuzz
from tests.pipeline.fuzz.mutations import damaged

pytestmark = pytest.mark.timeout(600)
SMALL = ["artifacts=artifacts", "results=results"]
VERBS = {
    "report": ["report", "results=results"],
    "compare": ["compare", "one", "two", "min_facts=5", "n_rounds=10"],
    "export": ["export", "one", "--format=parquet"],
    "artifacts": ["artifacts", *SMALL],
    "prune": ["prune", *SMALL],
    "prune all": ["prune", "--unfinished", "--yes", *SMALL],
    "forget": ["prune", "--forget=two", *SMALL],
    "verify all": ["verify", "--all", *SMALL],
    "repair": ["verify", "--all", "--repair", *SMALL],
    "accept": ["baseline", "accept", "demo", "one", *SMALL],
    "show": ["baseline", "show", "demo", *SMALL],
}
OF_A_RUN = ("verify", "status", "plan")
GROUPS = (("report", "compare", "export", *OF_A_RUN), tuple(VERBS)[3:])
IN_A_TABLE = 5  # artifacts/<stage>/<fingerprint>/<table>/<shard>.parquet
FOREIGN = {
    "parquet": lambda path: pl.DataFrame({"a": [1]}).write_parquet(path),
    "json": lambda path: path.write_text('{"a": [1]}') and None,
    "folder": Path.mkdir,
    "nowhere": lambda path: path.symlink_to("/nowhere/at/all"),
    "itself": lambda path: path.symlink_to(path.name),
    "pipe": os.mkfifo,
}
NAMES = (
    "more.json",
    "more.parquet",
    "more",
    ".more",
    "manifest.json",
    "0123456789abcdef",
    "é\n.json",
)


def moved_away(path: Path) -> None:
    """A folder, or a file, that is gone."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def as_something_else(kind: str) -> Harm:
    """Something else of the same name."""

    def harm(path: Path) -> None:
        moved_away(path)
        FOREIGN[kind](path)

    return harm


ANYTHING: dict[str, Harm] = {
    "moved away": moved_away,
    **{kind: as_something_else(kind) for kind in FOREIGN},
}


@st.composite
def harmed(draw: st.DrawFn, *, sound: bool) -> str:
    """Harm a file or folder below this one, or add one; says how.

    `sound`: nothing is harmed yet, so that what is edited can be read.
    """
    top = Path()
    path = draw(st.sampled_from(sorted(each for each in top.rglob("*") if each.parent != top)))
    match draw(st.sampled_from(["kind", "bytes", "new", "edited"])):
        case "bytes" if path.is_file():
            path.write_bytes(draw(damaged(path.read_bytes())))
            return f"{path}: bytes"
        case "edited" if sound and path.suffix == ".json":
            way = draw(st.sampled_from(sorted(damage.JSON)))
            damage.JSON[way](path)
            return f"{path}: {way}"
        case "edited" if sound and path.suffix == ".parquet" and len(path.parts) == IN_A_TABLE:
            way = draw(st.sampled_from(sorted(damage.SHARDS)))
            damage.SHARDS[way](path)
            return f"{path}: {way}"
        case "new" if path.is_dir():
            new, kind = path / draw(st.sampled_from(NAMES)), draw(st.sampled_from(sorted(FOREIGN)))
            if not os.path.lexists(new):
                FOREIGN[kind](new)
            return f"{new}: {kind}"
        case _:
            way = draw(st.sampled_from(sorted(ANYTHING)))
            ANYTHING[way](path)
            return f"{path}: {way}"


@pytest.mark.slow
@fuzz
@given(data=st.data())
@pytest.mark.parametrize("verbs", GROUPS)
def test_any_harm_to_a_store_ends_in_a_result_or_a_sentence(
    verbs: tuple[str, ...],
    data: st.DataObject,
    sound: Path,
    two_runs: dict[str, list[str]],
    fresh: Callable[[], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verb, folder = data.draw(st.sampled_from(verbs), label="verb"), fresh() / "copy"
    shutil.copytree(sound, folder)
    monkeypatch.chdir(folder)
    if verb in ("show", "accept"):
        assert command(*VERBS["accept"]).code == 0
    data.draw(harmed(sound=True), label="harm")
    if data.draw(st.booleans()):
        data.draw(harmed(sound=False), label="and")
    ends_well(*VERBS.get(verb, [verb, *two_runs["one"]]))
    monkeypatch.chdir(sound)  # where Hypothesis finds itself as it draws the next one
    shutil.rmtree(folder)
