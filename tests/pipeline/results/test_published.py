"""published: the papers' rows, with or without a run's numbers."""

import re
from types import SimpleNamespace

import polars as pl
import pytest

from factsweep.operators.errors import InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Result
from factsweep.pipeline.cli import main
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.results import published
from factsweep.pipeline.results.published import build_paper_tables
from tests.messages import naming


def test_every_published_number_of_a_model_is_printed_in_its_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["published", "gpt-j-6b"]) == 0
    (table,) = build_paper_tables(["gpt-j-6b"], None, "results")
    assert capsys.readouterr().out.startswith(f"{table.title}\n\n| model ")
    rows = catalog.load_published("kamel")
    assert rows is not None
    printed = table.rows.unpivot(["P", "R", "F1"])["value"].str.to_decimal(scale=4).cast(float)
    expected = rows.filter(model="gpt-j-6b")["value"]
    assert sorted(printed) == pytest.approx(sorted(expected))


def test_published_without_a_model_has_all_numbers_and_data_sets() -> None:
    tables = build_paper_tables([], None, "results")
    titles = [table.title for table in tables]
    assert {"BELIEF, 2024, Table 1", "KAMEL, text", "PRobELM, Table 7"} <= {*titles}
    assert len(titles) == len({*titles})


def test_published_unknown_model_is_refused_with_near_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["published", "llama3-8"]) == 2
    assert re.search(
        naming("llama3-8", "opt-13b", "Did you mean llama3-8b"), capsys.readouterr().err
    )


@pytest.mark.parametrize("benchmark", ["myriadlama", "myriadlama-mini"])
def test_published_beside_a_run_has_differences_only_from_the_same_facts(
    benchmark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"model": "mine", "benchmark": benchmark, "setting": "zero-shot"}
    rows = [{**place, "metric": "acc_at_1", "value": 0.4}]
    texts = dict.fromkeys(("variant", "slice"), pl.String)
    metrics = pl.DataFrame(rows).with_columns(
        pl.lit(None, dtype).alias(x) for x, dtype in texts.items()
    )
    branch = SimpleNamespace(benchmark=benchmark, benchmark_method=METHODS["belief"])
    monkeypatch.setattr(published.past_runs, "branches", lambda *_: [branch])
    numbers = catalog.load_published("belief")
    result = Result(None, {"metrics": metrics}, metrics, published=numbers)  # type: ignore[arg-type]
    monkeypatch.setattr(published, "collect_result", lambda _: result)
    table = build_paper_tables(["llama3-8b"], "own", "results")[0].rows
    assert table.filter(source="own").select("model", "benchmark", "Acc@1").row(0) == (
        *("mine", benchmark, ".4000"),
    )
    if benchmark == "myriadlama":
        assert table["Acc@1"].to_list() == [".3427", ".4000", "+.0573"]
        assert table["source"].to_list() == ["published", "own", "difference"]
    else:
        assert table["source"].to_list() == ["published, of other facts"] * 2 + ["own"]
    with pytest.raises(InputError, match=naming("nothing that own measured", "bert-base-uncased")):
        build_paper_tables(["bert-base-uncased"], "own", "results")
