"""What the tests of stages share."""

from pathlib import Path

import pytest

from factsweep.pipeline.config.settings import load
from factsweep.pipeline.execution.plan import Plan, planned


@pytest.fixture(scope="session")
def done(small: list[str], _finished_once: Path) -> Plan:
    """The small run when all is done, to be read alone: `finished` is a copy that may be harmed."""
    return planned(load([*small, f"artifacts={_finished_once}"]))
