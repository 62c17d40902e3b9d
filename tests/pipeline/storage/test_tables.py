"""Tables and figures as files."""

import re
from pathlib import Path

import polars as pl
import pytest
from matplotlib.figure import Figure

from factsweep.operators.methods.method import Report
from factsweep.pipeline.storage.store import Store
from factsweep.pipeline.storage.tables import drop_reports, write_report
from tests.messages import naming

DRAWN = True


def drawn() -> Figure:
    figure = Figure()
    axes = figure.subplots()
    axes.plot([0, 1], [0.2, 0.4], label="measured", marker="o")
    axes.fill_between([0, 1], [0.1, 0.3], [0.3, 0.5], hatch="/")
    axes.legend()
    return figure


def test_a_figure_whose_letters_no_font_has_is_written_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    figure = drawn()
    figure.suptitle("\U000e8000")  # of no script
    with caplog.at_level("WARNING", "factsweep"):
        write_report(Store(str(tmp_path)), Report({}, {"curve": figure}))
    (message,) = caplog.messages
    assert re.search(naming("figures/curve", "font"), message)
    assert (tmp_path / "figures" / "curve.png").is_file()


def test_write_report_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for place in ("one", "two"):
        table = pl.DataFrame({"metric": ["acc"], "value": [0.25]})
        report = Report(tables={"headline": table}, figures={"curve": drawn()})
        write_report(Store(str(tmp_path / place)), report)
    first, two = (
        {str(path.relative_to(tmp_path / place)): path.read_bytes() for path in files}
        for place in ("one", "two")
        for files in [sorted(path for path in (tmp_path / place).rglob("*") if path.is_file())]
    )
    assert sorted(first) == sorted(two)
    assert {name.rpartition(".")[2] for name in first} == {"csv", "md", "tex", "png", "svg", "json"}
    assert [name for name in first if first[name] != two[name]] == []


def test_write_report_over_an_earlier_one_leaves_nothing_of_that(tmp_path: Path) -> None:
    store, table = Store(str(tmp_path)), pl.DataFrame({"value": [0.25]})
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/mine.csv").touch()
    write_report(store, Report({"old": table, "both": table}, {"old": drawn()}))
    write_report(store, Report({"both": table}, {}))
    paths = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")}
    common = {f"tables/both.{suffix}" for suffix in ("csv", "md", "tex")}
    assert paths == {"files.json", "tables/mine.csv", *common}


def test_drop_reports_removes_those_of_earlier_commands_alone(tmp_path: Path) -> None:
    table = pl.DataFrame({"value": [0.25]})
    for name in ("kept", "stale"):
        store = Store(str(tmp_path / name))
        write_report(store, Report({"headline": table}, {"curve": drawn()}))
        store.put("index.html", b"a page")
    (tmp_path / "mine/tables").mkdir(parents=True)
    (tmp_path / "mine/tables/mine.csv").touch()
    drop_reports(Store(str(tmp_path)), besides=["kept"], files=["index.html"])
    assert {path.name for path in tmp_path.iterdir()} == {"kept", "mine"}
    assert (tmp_path / "kept/index.html").is_file()
    assert (tmp_path / "mine/tables/mine.csv").is_file()
