"""The progress line: counts, rates and the time left; the metrics for Prometheus."""

import json
import re
import time
import urllib.request
from pathlib import Path

import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st

from factsweep.pipeline.decoding.progress import (
    SHOWN,
    CountLabel,
    Counts,
    DecodingBar,
    Metrics,
    Pace,
    RecentCounts,
    line,
)
from factsweep.pipeline.machine.logs import Meter

READY: Counts = {"started": 1, "decoded": 0, "prompt_tokens": 0, "cached_tokens": 0}
ALL: Counts = {"all_shards": 9, "all_answers": 900, "answers": 100, "started": 1, "engines": 1}


def counts(decoded: float) -> Counts:
    return {**READY, "decoded": decoded, "output_tokens": decoded}


def lately(decoded: float, seconds: float) -> RecentCounts:
    return RecentCounts({**counts(decoded), "prompts": decoded / 25}, seconds)


@pytest.mark.parametrize(
    ("counts_shown", "ending"),
    [
        ({"engines": 0}, "no prompts to decode yet"),
        ({**ALL, "answers": 0, "started": 0, "loading": 2}, "2 engines loading the model"),
        ({**ALL, "answers": 0, "started": 0}, "no engine yet"),
        (ALL, "waiting for the first answers"),
        ({**ALL, "answers": 900}, "matching and measuring"),
    ],
)
def test_line_without_a_rate_says_what_is_being_done(counts_shown: Counts, ending: str) -> None:
    assert line(counts_shown, None, sure=False).endswith(ending)


def test_line_counts_answers_and_answers_per_second() -> None:
    """A sampled prompt has many answers: prompts per second would not fit the count."""
    text = line(ALL, lately(50, 10), sure=True)
    assert text.startswith("100/900 answers · 0/9 shards · 5.0 answers/s · ")
    assert "prompts" not in text
    assert text.endswith("1 engine · 2:40 left")


def test_line_time_left_is_not_shown_before_it_is_sure() -> None:
    assert "left" not in line(ALL, lately(50, 10), sure=False)


def test_line_time_left_is_not_known_while_settings_are_written() -> None:
    text = line({**ALL, "to_come": 2}, lately(50, 10), sure=True)
    assert "2 settings to come" in text
    assert "left" not in text
    assert "measuring" not in line({**ALL, "answers": 900, "to_come": 1}, lately(50, 10), sure=True)


def test_line_errors_are_counted_where_there_are_any() -> None:
    assert "· 1 error ·" in line({**ALL, "errors": 1}, lately(50, 10), sure=False)


def test_line_calls_that_went_wrong_are_counted_by_why() -> None:
    text = line({**ALL, "turned_away": 12, "timed_out": 1}, lately(50, 10), sure=False)
    assert "· 12 calls turned away · 1 call timed out ·" in text


def test_pace_before_the_first_answer_is_unknown() -> None:
    pace = Pace()
    for time_s in (0.0, 100.0):
        pace.add(time_s, counts(0))
    assert pace.recent() is None
    assert not pace.is_sure()


def test_pace_time_before_an_engine_was_ready_does_not_count() -> None:
    pace = Pace()
    pace.add(0.0, {"engines": 0, "decoded": 0})
    pace.add(500.0, READY)
    pace.add(510.0, counts(100))
    assert pace.recent() == RecentCounts(pytest.approx({**counts(100), "started": 0}), 10.0)


def test_pace_slow_beginning_is_forgotten_after_a_minute() -> None:
    pace = Pace()
    for second in range(200):
        pace.add(float(second), counts(second if second < 100 else 100 + 50 * (second - 100)))
    recent = pace.recent()
    assert recent is not None
    assert recent.counts["decoded"] / recent.seconds == 50


def test_pace_batch_longer_than_the_window_is_still_known() -> None:
    """Answers that come once in five minutes: the last minute alone would have none."""
    pace = Pace()
    for second in range(700):
        pace.add(float(second), counts(64 * (second // 300)))
    recent = pace.recent()
    assert recent is not None
    assert (recent.counts["decoded"], recent.seconds) == (64, 100)


def test_pace_tally_restarted_begins_again() -> None:
    pace = Pace()
    for time_s, decoded in ((0.0, 0), (10.0, 100), (20.0, 5), (30.0, 25)):
        pace.add(time_s, counts(decoded))
    assert pace.recent() == RecentCounts({**counts(20), "started": 0}, 10.0)


def test_pace_is_sure_after_ten_seconds_of_answers() -> None:
    pace = Pace()
    sure = []
    for time_s, decoded in ((0.0, 0), (100.0, 1), (109.0, 50), (110.0, 60)):
        pace.add(time_s, counts(decoded))
        sure.append(pace.is_sure())
    assert sure == [False, False, False, True]


@given(st.lists(st.tuples(st.floats(0.1, 100), st.integers(0, 500)), min_size=1, max_size=40))
def test_line_time_left_is_what_is_left_at_the_rate_shown(steps: list[tuple[float, int]]) -> None:
    """It is never negative, and fits the rate in the same line."""
    pace, time_s, decoded = Pace(), 0.0, 0
    everything = sum(n for _, n in steps) + 1
    for seconds, n in steps:
        time_s, decoded = time_s + seconds, decoded + n
        pace.add(time_s, counts(decoded))
        text = line(
            {**ALL, "answers": decoded, "all_answers": everything}, pace.recent(), sure=True
        )
        if match := re.search(r"([\d,.]+) answers/s.* ([\d:]+) left$", text):
            recent = pace.recent()
            assert recent is not None
            rate = recent.counts["decoded"] / recent.seconds
            parts = [int(part) for part in match[2].split(":")]
            n_left = sum(part * 60**power for power, part in enumerate(reversed(parts)))
            assert n_left == pytest.approx((everything - decoded) / rate, abs=0.51)


def test_bar_closed_after_work_says_what_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    bar = DecodingBar(Meter("decode m"), start_s=1800)
    bar.show({**ALL, **READY})
    bar.show({**ALL, **counts(900), "answers": 900})
    bar.close()
    text = capsys.readouterr().err.strip().splitlines()[-1]
    pattern = r"\S+ \S+ INFO decode m: 900/900 answers · 0/9 shards · .* answers/s .* in all"
    assert re.fullmatch(pattern, text)
    assert not re.search("left|engine", text)


def test_bar_closed_without_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    bar = DecodingBar(Meter("decode m"), start_s=1800)
    bar.show({"engines": 0, "decoded": 0})
    bar.close()
    assert capsys.readouterr().err == ""


DASHBOARD = Path(__file__).parents[3] / "docker/grafana.json"
COUNTS = {
    "all_shards": 4,
    "shards": 1,
    "all_answers": 100,
    "answers": 20,
    "decoded": 30,
    "prompts": 30,
    "prompt_tokens": 600,
    "cached_tokens": 300,
    "output_tokens": 90,
    "errors": 2,
    "engines": 2,
    "loading": 1,
    "turned_away": 4,
    "timed_out": 1,
    "store_refused": 3,
}
EXPECTED = {
    "prompts": 30,
    "decoded": 30,
    "prompt_tokens": 600,
    "cached_tokens": 300,
    "output_tokens": 90,
    "errors": 2,
    "faults": 5,
    "store_refused": 3,
    "cached_share": 0.5,
    "engines": 2,
    "loading": 1,
    "shards_left": 3,
    "answers_left": 80,
}


def exported(metric: CountLabel) -> str:
    """Its name in Prometheus."""
    return f"ray_{metric.metric}{'_total' if metric.grows else ''}"


def test_dashboard_shows_what_is_exported_and_nothing_else() -> None:
    names = set(re.findall(r"ray_factsweep_\w+", DASHBOARD.read_text()))
    assert names == set(map(exported, SHOWN.values()))


def test_dashboard_has_a_query_in_each_panel_for_the_runs_that_are_chosen() -> None:
    board = json.loads(DASHBOARD.read_text())
    queries = [query["expr"] for panel in board["panels"] for query in panel["targets"]]
    assert all('{run=~"$run"}' in query for query in queries)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_metrics_are_at_the_endpoint_of_ray() -> None:
    metrics = Metrics("the run")
    metrics.show({**COUNTS, "prompts": 10})
    metrics.show(COUNTS)
    (node,) = (node_row for node_row in ray.nodes() if node_row["Alive"])
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    expected = {exported(SHOWN[key]): float(value) for key, value in EXPECTED.items()}
    end, values = time.monotonic() + 240, dict[str, float]()
    while values != expected and time.monotonic() < end:
        time.sleep(1)
        with urllib.request.urlopen(url, timeout=60) as page:
            values = shown(page.read().decode())
    assert values == expected


def shown(page: str) -> dict[str, float]:
    """The metrics of the run at an endpoint, by name."""
    lines = re.findall(
        r'^(ray_factsweep_\w+)\{[^}]*run="the run"[^}]*\} (\S+)$', page, re.MULTILINE
    )
    return {name: float(value) for name, value in lines}
