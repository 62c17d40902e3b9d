"""What the fault tests share."""

import pytest

from tests.faults.sweep import SMALL, Sweep


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A small sweep that nothing happened to."""
    sweep = Sweep(tmp_path_factory.mktemp("calm"), SMALL)
    done = sweep.finish()
    assert done.returncode == 0, done.stderr
    return sweep
