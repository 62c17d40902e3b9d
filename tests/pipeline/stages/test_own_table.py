"""Tables of one's table_run: values are compared, cells are split, and answers have room."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.runs.prompts import each as prompts_of
from factsweep.pipeline.runs.run import score
from factsweep.pipeline.stages.plan import planned, warnings

RIGHT = {
    "1879-03-14": ("March 14, 1879", True),
    "7 November 1867": ("1867-11-08", False),
    "May 4, 1900": ("04/05/1900", True),
    "1912-06-23": ("in 1912", False),
    "1777-04-30": ("30 April 1777 in Brunswick", True),
    "Pretoria; Cape Town": ("Cape Town", False),
    "8,849 m": ("29,032 feet", True),
}
RELATIONS = dict.fromkeys(RIGHT, "born") | {"Pretoria; Cape Town": "capital", "8,849 m": "height"}
Settings = Callable[..., Run]


@pytest.fixture
def table_run(small: list[str], tmp_path: Path) -> Settings:
    """Settings of a table of seven facts."""
    rows = [(RELATIONS[text], "[X]: [Y].", f"S{n}", text) for n, text in enumerate(RIGHT)]
    columns = ["relation", "template", "subject", "object"]
    path = tmp_path / "facts.csv"
    pl.DataFrame(rows, columns, orient="row").write_csv(path)
    model = [override for override in small if override.startswith(("model.", "model="))]

    def table_run(*overrides: str) -> Run:
        places = (f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results")
        return load([f"benchmark={path}", *model, "decoding.engine=fake", *places, *overrides])

    return table_run


def fingerprint(run: Run) -> str:
    return planned(run).branches[0].prompts.fingerprint


def test_score_compares_values_and_splits_cells(table_run: Settings, tmp_path: Path) -> None:
    prompts = pl.concat(prompts_of(table_run()))
    place = pl.col("prompt_id").str.extract(r"\.S(\d)\.").cast(pl.Int64)
    answers = prompts.select("prompt_id", place=place)
    texts = pl.DataFrame(
        [(n, text) for n, (text, _) in enumerate(RIGHT.values())], ["place", "text"], orient="row"
    )
    answers.join(texts, on="place").select("prompt_id", "text").write_ndjson(tmp_path / "a.jsonl")
    n_right = sum(is_right for _, is_right in RIGHT.values())
    for overrides, more in (
        ((), 0),
        (("benchmark.separator=;",), 1),
        (("benchmark.types=names",), -4),
    ):
        metrics = score(table_run(f"answers={tmp_path}/a.jsonl", *overrides))
        accuracy = metrics.filter(pl.col("slice").is_null(), metric="acc_at_1")["value"].item()
        assert accuracy == pytest.approx((n_right + more) / len(RIGHT))


def test_plan_names_types_cells_and_the_form_of_demonstrations(table_run: Settings) -> None:
    run = table_run("prompt=4-relation", "benchmark.relations=[born]")
    lines = "\n".join(warnings(planned(run)))
    assert "objects of born are compared as dates: 5 of 5" in lines
    assert "demonstrations write dates and numbers in one way: born as '1879-03-14'" in lines
    assert "row 5: object 'Pretoria; Cape Town'" in lines


def test_each_part_of_a_split_cell_is_checked_before_the_first_run(
    table_run: Settings, tmp_path: Path
) -> None:
    table = pl.read_csv(tmp_path / "facts.csv")
    cells = pl.col("object").replace("Pretoria; Cape Town", "Pretoria; ?")
    table.with_columns(cells).write_csv(tmp_path / "facts.csv")
    lines = "\n".join(warnings(planned(table_run("benchmark.separator=;"))))
    assert "no answer can match 1 of the right answers" in lines
    assert "no answer can match" not in "\n".join(warnings(planned(table_run())))


def test_room_is_made_for_the_longest_answer_and_a_smaller_limit_is_named(
    table_run: Settings,
) -> None:
    assert planned(table_run()).run.decoding.max_tokens > 10
    assert planned(table_run("benchmark.relations=[capital]")).run.decoding.max_tokens == 10
    plan = planned(table_run("benchmark.max_tokens=3"))
    assert plan.run.decoding.max_tokens == 3
    assert any("decoding.max_tokens=3 cuts it" in line for line in warnings(plan))


def test_prompts_change_only_where_demonstrations_do(table_run: Settings) -> None:
    names, typed = table_run("benchmark.types=names"), table_run()
    assert fingerprint(names) == fingerprint(typed)
    shots = [
        table_run("prompt=4-relation", "benchmark.relations=[born]", f"benchmark.types={types}")
        for types in ("names", "recognised")
    ]
    assert len({*map(fingerprint, shots)}) == 2
    assert fingerprint(table_run("benchmark.separator=;")) != fingerprint(typed)
    assert replace(typed, name="x").benchmark == typed.benchmark
