"""Several models in one store. The engine is fake: see sweep.py."""

from pathlib import Path

import pytest

from tests.faults.sweep import CHUNK, SMALL, Sweep
from tests.s3_server import bucket, serving

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


@pytest.mark.chaos  # a dozen drivers
@pytest.mark.parametrize("place", ["folder", "throttled S3"])
def test_five_models_of_which_two_are_killed_answer_every_prompt_once(
    running_ray: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """All share facts and prompts, which one of them makes; none waits for another to end.

    Of S3 every eighth request is refused as too much: it is asked again, and the sweeps count it.
    """
    with serving(tmp_path / "s3.log", "busy") as server:
        store = str(tmp_path / "artifacts")
        if place != "folder":  # its URL has all that the nodes of a Ray that runs already need
            bucket(server.url, monkeypatch)
            host = server.url.removeprefix("http://")
            asked = f"scheme=http&endpoint_override={host}&region=us-east-1"
            store = f"s3://key:secret@sweeps/together?{asked}"
        sweeps = [
            Sweep(
                tmp_path / name,
                (*SMALL, running_ray, "cluster.when_held=wait", f"model.id={name}"),
                store,
                seconds_per_answer=0.5,
            ).start()
            for name in ("ada", "bea", "cia", "dea", "eva")
        ]
        for each in sweeps:
            each.until(lambda each=each: len(each.answered()) > 5)
        assert [each.process and each.process.poll() for each in sweeps] == [None] * 5
        for each in sweeps[:2]:
            each.kill_driver()
            each.start()
        done = [each.finish() for each in sweeps]
        assert [each.returncode for each in done] == [0] * 5, [each.stderr for each in done]
        if place != "folder":
            assert all("refused by the store" in each.stderr for each in done)
        prompts = set(sweeps[-1].answered())
        for number, each in enumerate(sweeps):
            assert set(each.answered()) == prompts
            twice = len(each.answered()) - len(prompts)
            assert twice <= (CHUNK if number < 2 else 0), twice
            assert each.verify().returncode == 0
        assert len(sweeps[0].store.folders("prompts")) == 1
        assert len(sweeps[0].store.folders("generations")) == 5
