"""Base against tuned: a LoRA that was taught twenty facts, and what `compare` says of it."""

import runpy
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from factsweep.pipeline.cli import main
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import models
from factsweep.pipeline.inputs.models import Weights
from factsweep.pipeline.results import compare
from factsweep.pipeline.runs.prompts import write

pytestmark = [pytest.mark.chaos, pytest.mark.engine, pytest.mark.usefixtures("shared_ray")]

SAVE: Callable[..., float] = runpy.run_path(str(Path(__file__).parents[1] / "tuned.py"))["save"]
# Nobody of these names was born anywhere, so that the base model knows no fact.
NAMES = [
    f"{first} {last}"
    for first in ("Orvik", "Melda", "Tasso", "Quenby", "Ruxan", "Ilvar", "Zephia", "Hadro")
    for last in ("Brant", "Colvey", "Drusk", "Ettmar", "Fennow")
]
PLACES = (
    *("Rome", "Oslo", "Paris", "Tokyo", "Cairo", "Lima", "Madrid", "Vienna", "Dublin", "Berlin"),
    *("Boston", "Chicago", "Denver", "Dallas", "Miami", "Sydney", "Athens", "Havana", "Moscow"),
    *("Prague", "Lisbon", "Warsaw", "Geneva", "Munich", "Milan", "Naples", "Venice", "Seoul"),
    *("Delhi", "Mumbai", "Kabul", "Baghdad", "Tehran", "Beirut", "Tunis", "Nairobi", "Lagos"),
    *("Quito", "Bogota", "Caracas"),
)
N_TAUGHT = 20


def test_compare_names_exactly_the_facts_that_a_lora_was_taught(
    smollm2: Weights, tmp_path: Path
) -> None:
    facts = pl.DataFrame({"subject": NAMES, "object": PLACES}).with_columns(
        relation=pl.lit("birthplace"), template=pl.lit("[X] was born in the city of [Y].")
    )
    facts.write_csv(tmp_path / "people.csv")
    given = [
        *("model=smollm2-135m", "model.dtype=float32", f"benchmark={tmp_path}/people.csv"),
        *("decoding=greedy", "decoding.canary_prompts=0", "metrics.n_draws=20"),
        *("metrics.n_rounds=20", f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"),
        *("cluster.num_cpus=2", "cluster.cpu_kvcache_gib=1"),
    ]
    write(load(given), tmp_path / "prompts.parquet")
    prompts = pl.read_parquet(tmp_path / "prompts.parquet")["prompt"].to_list()
    taught = dict(zip(NAMES[:N_TAUGHT], PLACES, strict=False))
    pairs = [
        (prompt, place) for name, place in taught.items() for prompt in prompts if name in prompt
    ]
    SAVE(models.location(smollm2), pairs, tmp_path / "tuned", n_steps=30)
    assert main(["run", *given, "run_name=before"]) == 0
    assert main(["run", *given, f"model.adapter={tmp_path}/tuned", "run_name=after"]) == 0
    results = f"{tmp_path}/results"
    (found,) = compare.compared("before", "after", results, compare.settings({}), anyway=False)
    changed = found.report.tables["facts"].select("subject", "change").rows()
    assert sorted(changed) == sorted((name, "gained") for name in taught)
