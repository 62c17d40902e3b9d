"""Leaks: Acc@1 of prompts that have their answer in them, and of the others, against a loop."""

from pathlib import Path
from statistics import mean

import polars as pl
import pytest

import factsweep
from factsweep.pipeline.results.leaks import PLACES, leaks, said
from factsweep.pipeline.results.past import branches
from factsweep.pipeline.runs import run as running
from tests.pipeline.conftest import Settings
from tests.pipeline.here import make_here


def _place(prompt: str, labels: list[str]) -> str:
    """Where an answer stands, by the lines of a prompt."""
    *before, asked, _ = prompt.split("\n")
    shown = [line.removeprefix("A: ").rstrip(".") for line in before if line.startswith("A: ")]
    if set(shown) & set(labels):
        return PLACES[0]
    return PLACES[1] if any(f" {label} " in f" {asked} " for label in labels) else PLACES[2]


@pytest.mark.parametrize("prompt", ["zero-shot", "4-template"])
def test_leaks_are_those_of_a_loop_over_texts(small_settings: Settings, prompt: str) -> None:
    run = small_settings(f"prompt={prompt}")
    running.measured(run, make_here)
    loaded = factsweep.load(f"{run.results}/{run.name}")
    by_place: dict[str, dict[str, list[bool]]] = {}
    for row in loaded.answers().iter_rows(named=True):
        facts = loaded.facts.pairs.filter(pair_id=row["pair_id"])["objects"].item()
        place = _place(row["prompt"], [label for each in facts for label in each["labels"]])
        by_place.setdefault(place, {}).setdefault(row["pair_id"], []).append(row["correct"])
    found = leaks(branches(run.results, [run.name]))
    if set(by_place) == {PLACES[-1]}:
        assert found.is_empty()
        assert "leaks" not in loaded.tables
        return
    expected = {
        place: (sum(map(len, pairs.values())), mean(map(mean, pairs.values())))
        for place, pairs in by_place.items()
    }
    told = {
        place: (n, value) for place, n, value in found.select("place", "n", "value").iter_rows()
    }
    assert told.keys() == expected.keys()
    for place, (n, value) in expected.items():
        assert told[place] == (n, pytest.approx(value))
    page = Path(run.results, run.name, "index.html").read_text()
    n_leaking = sum(n for place, (n, _) in expected.items() if place != PLACES[-1])
    lines = list(said(found))
    assert len(lines) == (n_leaking > sum(n for n, _ in expected.values()) / 10)
    assert all(f"{n_leaking:,} of" in each and each[:40] in page for each in lines)
    assert pl.read_csv(Path(run.results, run.name, "tables/leaks.csv")).height == found.height
