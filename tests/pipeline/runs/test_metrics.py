"""What Prometheus is shown of a sweep: by Ray's own endpoint, and in the dashboard."""

import json
import re
import time
import urllib.request
from pathlib import Path

import pytest
import ray

from factsweep.pipeline.decoding.progress import SHOWN, Counted, Metrics

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


def exported(shown: Counted) -> str:
    """Its name in Prometheus."""
    return f"ray_{shown.metric}{'_total' if shown.grows else ''}"


def test_dashboard_shows_what_is_exported_and_nothing_else() -> None:
    named = set(re.findall(r"ray_factsweep_\w+", DASHBOARD.read_text()))
    assert named == set(map(exported, SHOWN.values()))


def test_dashboard_has_a_query_in_each_panel_for_the_runs_that_are_chosen() -> None:
    board = json.loads(DASHBOARD.read_text())
    queries = [each["expr"] for panel in board["panels"] for each in panel["targets"]]
    assert all('{run=~"$run"}' in each for each in queries)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_metrics_are_at_the_endpoint_of_ray() -> None:
    metrics = Metrics("the run")
    metrics.show({**COUNTS, "prompts": 10})
    metrics.show(COUNTS)
    (node,) = (each for each in ray.nodes() if each["Alive"])
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    wanted = {exported(SHOWN[key]): float(value) for key, value in EXPECTED.items()}
    end, found = time.monotonic() + 240, dict[str, float]()
    while found != wanted and time.monotonic() < end:
        time.sleep(1)
        with urllib.request.urlopen(url, timeout=60) as page:
            found = shown(page.read().decode())
    assert found == wanted


def shown(page: str) -> dict[str, float]:
    """The metrics of the run at an endpoint, by name."""
    lines = re.findall(
        r'^(ray_factsweep_\w+)\{[^}]*run="the run"[^}]*\} (\S+)$', page, re.MULTILINE
    )
    return {name: float(value) for name, value in lines}
