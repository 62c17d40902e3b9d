"""Several models in one store. The engine is fake: see sweep.py."""

from pathlib import Path

import pytest

from tests.faults.sweep import SMALL, Sweep

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]


def test_second_model_takes_what_the_first_has_published_and_ends_before_it(
    running_ray: str, tmp_path: Path
) -> None:
    given, store = (*SMALL, running_ray), str(tmp_path / "artifacts")
    first = Sweep(tmp_path / "first", given, store, seconds_per_answer=1.0).start()
    first.until(lambda: first.names("prompts", "leases"))  # Ray has yet to start, and to write them
    second = Sweep(tmp_path / "second", [*given, "model.id=another"], store)
    done = second.finish()
    assert done.returncode == 0, done.stderr
    assert first.process is not None
    assert first.process.poll() is None
    assert len(first.names("prompts", "*")) == len(second.names("prompts", "*"))
    assert second.verify().returncode == 0
