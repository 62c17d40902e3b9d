"""Log lines as JSON: those of a run, and those that an engine left."""

import json
import logging

from factsweep.pipeline.machine import logs

WRITTEN = """loading
(EngineCore_DP0 pid=7) INFO 11-22 09:20:11 [core.py:708] Initializing
2026-11-22 09:20:12 INFO engine a1 begins shard generations/f0/generations/P36.0001
2026-11-22 09:20:13 WARNING the lease could not be renewed
Traceback (most recent call last):
RuntimeError: no kernel image
"""


def test_structured_line_has_time_level_run_engine_and_shard() -> None:
    found = [json.loads(line) for line in logs.structured(WRITTEN, "sweep", 3).splitlines()]
    assert [each["message"] for each in found] == WRITTEN.splitlines()
    assert {(each["run"], each["engine"]) for each in found} == {("sweep", 3)}
    assert [each["level"] for each in found] == ["INFO"] * 3 + ["WARNING"] * 3
    assert [each["shard"] for each in found] == [None] * 2 + [
        "generations/f0/generations/P36.0001"
    ] * 4
    assert found[0]["time"] is None
    assert found[1]["time"] < found[2]["time"] < found[3]["time"] == found[5]["time"]


def test_formatter_json_names_the_run() -> None:
    record = logging.makeLogRecord({"msg": "done", "levelname": "INFO"})
    line = json.loads(logs.formatter("json", "sweep").format(record))
    assert list(line) == ["time", "level", "run", "engine", "shard", "message"]
    assert (line["run"], line["engine"], line["message"]) == ("sweep", None, "done")


def test_note_of_a_shard_is_none_of_a_death() -> None:
    notes = [logs.is_note(line) for line in WRITTEN.splitlines()]
    assert notes == [False, False, True, False, False, False]
