"""What the fault tests share."""

from collections.abc import Iterator

import pytest
from filelock import FileLock

from tests.faults import head
from tests.faults.sweep import ON_GPUS, SMALL, STARTED, Sweep


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    """A test that fails takes its drivers with it, so that it does not slow the next ones."""
    yield
    while STARTED:
        if (sweep := STARTED.pop()).process is not None:
            sweep.kill_driver()


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A small sweep that nothing happened to."""
    return undisturbed(tmp_path_factory, "calm", *SMALL)


@pytest.fixture(scope="session")
def calm_on_nodes(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """The sweep of several nodes, which nothing happened to."""
    return undisturbed(tmp_path_factory, "calm-on-nodes", *ON_GPUS, "cluster.device=cpu")


def undisturbed(factory: pytest.TempPathFactory, name: str, *overrides: str) -> Sweep:
    """A sweep that ends well, made once for all processes of pytest (xdist)."""
    folder = factory.getbasetemp().parent / name
    with FileLock(f"{folder}.lock"):
        sweep = Sweep(folder, overrides)
        if not (folder / "results/sweep/index.html").exists():
            outcome = sweep.finish()
            assert outcome.returncode == 0, outcome.stderr
        return sweep


@pytest.fixture
def running_ray(_running_ray: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What has a sweep join a Ray that runs already: where it harms none, that takes half the time.

    The Ray has one node, and is a process of its own: tests may have another in theirs. It has no
    token, and drivers must want none, as one of this process would have them (`RAY_AUTH_MODE`).
    """
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    return _running_ray


@pytest.fixture(scope="session")
def _running_ray() -> Iterator[str]:
    with head.running(lambda *_: ["--num-cpus=16", "--no-monitor"]) as head_:
        yield f"cluster.address={head_.address}"
