"""What the fault tests share."""

from collections.abc import Iterator

import pytest

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
    sweep = Sweep(tmp_path_factory.mktemp("calm"), SMALL)
    done = sweep.finish()
    assert done.returncode == 0, done.stderr
    return sweep


@pytest.fixture(scope="session")
def calm_on_nodes(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """The sweep of several nodes, which nothing happened to."""
    sweep = Sweep(tmp_path_factory.mktemp("calm"), (*ON_GPUS, "cluster.device=cpu"))
    done = sweep.finish()
    assert done.returncode == 0, done.stderr
    return sweep
