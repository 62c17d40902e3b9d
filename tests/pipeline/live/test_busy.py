"""What the GPUs of a run did is kept from each time that it went on."""

from pathlib import Path

from factsweep.pipeline.config.settings import load
from factsweep.pipeline.live import busy

SPAN = {
    "engine": "e",
    "node": "n",
    "gpus": ["0", "1"],
    "doing": "loading",
    "began": 1.0,
    "ended": 2.0,
}


def test_each_time_adds_what_engines_did(tmp_path: Path) -> None:
    run = load([f"results={tmp_path}", "run_name=sweep"])
    busy.keep(run, [], 8)
    assert busy.known(run).is_empty()
    assert not (tmp_path / "sweep").exists()  # without GPUs nothing is written
    busy.keep(run, [SPAN], 8)
    busy.keep(run, [{**SPAN, "began": 5.0, "ended": 9.0}], 16)
    found = busy.known(run)
    assert found["run"].to_list() == ["sweep", "sweep"]
    assert found.select("began", "there").rows() == [(1.0, 8), (5.0, 16)]
