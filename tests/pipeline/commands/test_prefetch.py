"""prefetch: from a hub on loopback, whatever it does; then without it."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.commands.data import prefetch
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import digests
from factsweep.pipeline.inputs.models import resolve
from tests.messages import naming
from tests.pipeline.inputs.hub_server import COMMIT, Hub, ask, serving

TOKEN = "hf_planted0123456789"
WEIGHTS = os.urandom(300_000)
TINY = ["model.source=hub", "model.id=someone/tiny", "model.revision=main"]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with a model and a data set, which this process asks."""
    model = {
        "config.json": b"{}",
        "model.safetensors": WEIGHTS,
        "pytorch_model.bin": b"the same again",
    }
    data = {"data/train-0.parquet": os.urandom(5000)}
    repositories = {"someone/tiny": model, "datasets/iszhaoxin/MyriadLAMA": data}
    with serving(Hub(repositories)) as hub:
        ask(hub, monkeypatch, tmp_path / "hub")
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("FACTSWEEP_HOME", str(tmp_path / "home"))
        yield hub


Fetch = Callable[..., tuple[list[str], list[str]]]


@pytest.fixture
def fetched(hub: Hub) -> Fetch:
    """Prefetches the model, and more by overrides; returns the lines and the notes."""

    def fetched(*overrides: str) -> tuple[list[str], list[str]]:
        notes: list[str] = []
        lines = list(prefetch([*TINY, *overrides], notes.append))
        return lines, notes

    return fetched


def weights(tmp_path: Path) -> Path:
    snapshots = tmp_path / "hub" / "models--someone--tiny" / "snapshots"
    return snapshots / COMMIT / "model.safetensors"


def test_prefetch_brings_model_and_data_and_says_at_which_commits(
    fetched: Fetch, hub: Hub, tmp_path: Path
) -> None:
    lines, notes = fetched("benchmark=myriadlama")
    assert lines[0].startswith(f"model someone/tiny: commit {COMMIT}, 2 files, 300,002 bytes")
    assert lines[1].startswith(f"data iszhaoxin/MyriadLAMA: commit {COMMIT}, 1 files, 5,000 bytes")
    assert lines[2].startswith(f"workers run offline with: HF_HUB_CACHE={tmp_path}/hub ")
    assert lines[2].endswith(" HF_HUB_OFFLINE=1")
    assert weights(tmp_path).read_bytes() == WEIGHTS
    assert "pytorch_model.bin" not in hub.downloads  # the same weights in another format
    assert notes == []
    downloads = dict(hub.downloads)
    fetched("benchmark=myriadlama")
    assert dict(hub.downloads) == downloads


def test_prefetch_leaves_digests_that_no_job_computes_again(
    fetched: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_KEPT_FROM", 1000)
    monkeypatch.setattr(digests, "_TICK_NS", 0)
    fetched()

    def read(*_: object) -> str:
        raise AssertionError("read again")

    monkeypatch.setattr(digests, "_hash", read)
    assert resolve(load(TINY).model).revision == COMMIT


def test_resolve_prefetched_model_without_the_hub_is_its_commit(
    fetched: Fetch, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched()
    model = load(TINY).model
    assert (resolve(model).revision, resolve(model).offline) == (COMMIT, False)
    hub.refuse["someone/tiny"] = (503, "")
    assert (resolve(model).revision, resolve(model).offline) == (COMMIT, True)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    for offline in (False, True):
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
        assert resolve(model).revision == COMMIT


def test_prefetch_cut_off_download_goes_on_where_it_was(
    fetched: Fetch, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 10_000)  # of 10 MB
    hub.cut["model.safetensors"] = 105_000
    fetched()
    assert hub.ranges == ["bytes=100000-"]
    assert weights(tmp_path).read_bytes() == WEIGHTS


def test_prefetch_corrupt_file_is_named_and_fetched_again(
    fetched: Fetch, hub: Hub, tmp_path: Path
) -> None:
    hub.corrupt.add("model.safetensors")
    _, notes = fetched()
    assert len(notes) == 1
    assert re.search(naming("someone/tiny", "model.safetensors", "sha256"), notes[0])
    assert weights(tmp_path).read_bytes() == WEIGHTS
    weights(tmp_path).resolve().write_bytes(b"x" * len(WEIGHTS))  # damaged on the disk
    _, notes = fetched()
    assert "model.safetensors is corrupt" in notes[0]
    assert weights(tmp_path).read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "GatedRepo", "someone/tiny is gated: ask for access on its page"),
        (401, "GatedRepo", "someone/tiny is gated: ask for access on its page"),
        (404, "RepoNotFound", "the hub has no someone/tiny, or HF_TOKEN may not see it"),
        (404, "RevisionNotFound", "someone/tiny has no revision main; give a branch"),
        (403, "", r"the hub refuses HF_TOKEN for someone/tiny \(HTTP 403\)"),
    ],
)
def test_prefetch_refusal_is_one_sentence_that_says_what_to_do(
    fetched: Fetch, hub: Hub, status: int, code: str, message: str
) -> None:
    hub.refuse["someone/tiny"] = (status, code)
    with pytest.raises(InputError, match=f"^{message}") as error:
        fetched()
    assert "\n" not in str(error.value)
    assert TOKEN not in str(error.value)


@pytest.mark.parametrize(
    "headers", [{"Retry-After": "0"}, {"RateLimit": '"api";r=0;t=0'}], ids=["after", "limit"]
)
def test_prefetch_rate_limit_is_waited_for(
    fetched: Fetch, hub: Hub, tmp_path: Path, headers: dict[str, str]
) -> None:
    hub.limited, hub.limit_headers = 2, headers
    _, notes = fetched()
    assert notes == [f"the hub limits requests: waiting 0 s ({number}/5)" for number in (1, 2)]
    assert weights(tmp_path).read_bytes() == WEIGHTS
    hub.limited = 100
    with pytest.raises(InputError, match=naming("someone/tiny", "5 tries", "wait")):
        fetched()


def test_prefetch_list_of_models_brings_each(hub: Hub) -> None:
    hub.repositories["meta-llama/Meta-Llama-3-8B"] = {"config.json": b"{}"}
    hub.refuse["meta-llama/Meta-Llama-3-70B"] = (403, "GatedRepo")
    lists = ["model=llama3-8b,llama3-70b", "benchmark=myriadlama-mini"]
    lines = prefetch(lists, print)
    assert next(lines).startswith(f"model meta-llama/Meta-Llama-3-8B: commit {COMMIT}, 1 files")
    with pytest.raises(InputError, match=naming("Llama-3-70B")):
        next(lines)


@pytest.mark.slow
def test_prefetch_stopped_keeps_whole_files_and_writes_its_token_nowhere(
    hub: Hub, tmp_path: Path
) -> None:
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "huggingface"),
        "PYTHONPATH": os.getcwd(),  # noqa: PTH109
    }
    environment.pop("HF_HUB_OFFLINE", None)
    command = [
        sys.executable,
        "-m",
        "factsweep.pipeline.cli",
        "prefetch",
        *TINY,
        "benchmark=myriadlama",
    ]

    def started() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
        )

    hub.cut["model.safetensors"] = 200_000
    hub.broken_after_cut = True
    failed = started()
    assert failed.returncode == 2
    assert "finished files are kept" in failed.stderr
    hub.broken = hub.broken_after_cut = False
    process = started()
    assert process.returncode == 0, process.stderr
    assert hub.downloads["config.json"] == 1
    assert hub.downloads["model.safetensors"] == 2
    assert f"Bearer {TOKEN}" in hub.tokens
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 5
    printed = "".join((failed.stdout, failed.stderr, process.stdout, process.stderr))
    assert not any(TOKEN.encode() in content for content in (*written, printed.encode()))
