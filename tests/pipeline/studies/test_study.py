"""A study of answers that were made here, so that what each run knows is known beforehand."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.metrics.comparing import curve
from factsweep.operators.metrics.comparing.comparison import holm
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.compose import choices, compose_config, expand_runs
from factsweep.pipeline.config.folders import files
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.results import compare, past_runs
from factsweep.pipeline.runs import estimate as estimating
from factsweep.pipeline.runs import run as runner
from factsweep.pipeline.studies.study import coarse_first, study
from factsweep.pipeline.studies.study_report import _lives_by_popularity
from tests.messages import naming
from tests.pipeline.here import labelled_prompts, make_here

SLICE = (
    "prompt=zero-shot",
    "prompt.templates=manual",
    "benchmark.relations=[P17,P30,P36,P37]",
    "benchmark.pairs_per_relation=8",
    "benchmark.names_per_subject=1",
    "metrics.n_draws=20",
    "metrics.n_rounds=20",
    "metrics.analyses=[]",
)
# Which steps know a fact, by its place in its relation.
LIVES = {
    0: ("always known", "110111"),
    1: ("learned", "000111"),
    2: ("forgotten", "110010"),
    3: ("learned anew", "110011"),
    4: ("known for a while", "011001"),
    5: ("never known", "010010"),
}
STEPS = range(6)


@pytest.fixture
def steps(tmp_path: Path) -> list[str]:
    """Answers of five steps to a slice of the mini set; returns their files."""
    prompts = labelled_prompts(load([*SLICE, f"artifacts={tmp_path}/artifacts"]))
    pairs = prompts.unique("pair_id", keep="first", maintain_order=True)
    relation = pl.col("pair_id").cast(pl.String).str.split(".").list.first()
    place = pl.int_range(pl.len()).over(relation) % len(LIVES)
    pairs = pairs.select("pair_id", place=place)
    pairs.write_parquet(tmp_path / "planted.parquet")
    for step in STEPS:
        places = [place for place, (_, known_steps) in LIVES.items() if known_steps[step] == "1"]
        text = pl.when(pl.col("place").is_in(places)).then("label").otherwise(pl.lit("no idea"))
        rows = prompts.join(pairs, on="pair_id").select("prompt_id", text=text)
        rows.write_parquet(tmp_path / f"step-{step}.parquet")
    return [f"{tmp_path}/step-{step}.parquet" for step in STEPS]


def test_study_tells_the_curve_and_the_life_of_each_fact(
    steps: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    missing = f"{tmp_path}/step-9.parquet"
    command = ["study", "growth", *SLICE, *folders, f"answers={','.join([*steps, missing])}"]
    assert main(command) == 2  # one has no file; the others are measured
    printed = capsys.readouterr()
    assert "step-9 failed: " in printed.err
    assert "growth: 6 runs, 1 missing" in printed.out
    out = tmp_path / "results/growth/report"
    points = pl.read_parquet(out / "along.parquet")
    runs = past_runs.branches(f"{tmp_path}/results", [f"growth/step-{i}" for i in STEPS])
    metrics = [run.metrics.read_all("metrics").filter(metric="acc_at_1") for run in runs]
    values = [run.filter(pl.col("slice").is_null())["value"].item() for run in metrics]
    assert points["value"].to_list() == pytest.approx(values)
    pair = "growth/step-0", "growth/step-2"
    (result,) = compare.compare_runs(
        *pair, f"{tmp_path}/results", compare.settings({}), anyway=False
    )
    rows = result.report.raw["comparison"].filter(pl.col("relation_id").is_null())
    expected = rows.filter(metric="acc_at_1").select("difference", "ci_low", "ci_high", "p")
    columns = ("difference", "difference_low", "difference_high", "p")
    assert points.select(columns).row(2) == expected.row(0)
    assert points["p_holm"].to_list() == points.select(holm(pl.col("p"))).to_series().to_list()
    assert points["rank_low"].min() == 1
    lives = pl.read_parquet(out / "myriadlama-mini/lives-zero-shot-templates=manual.parquet")
    planted = pl.read_parquet(tmp_path / "planted.parquet").sort("pair_id")
    expected = [LIVES[place][0] for place in planted["place"]]
    assert lives.sort("pair_id")["life"].cast(pl.String).to_list() == expected
    anew = lives.filter(life="learned anew").row(0, named=True)
    assert anew["learned_at"] == "step-0"
    assert anew["forgotten_at"] == "step-2"
    table = (
        out / "myriadlama-mini/tables/lives-of-facts-zero-shot-templates=manual.md"
    ).read_text()
    assert "▁▁█▁▁█" not in table
    assert "██▁▁██" in table
    page = (out / "myriadlama-mini/index.html").read_text()
    assert "The life of facts" in page
    old_points = (out / "along.parquet").read_bytes()
    short_command = [*command[:-1], f"answers={','.join(steps)}"]
    assert (
        main([*short_command[:2], "report", *short_command[2:]]) == 0
    )  # asks nothing, says the same
    assert (out / "along.parquet").read_bytes() == old_points
    assert main([*short_command[:2], "report", *short_command[2:], "--known-share", "0.6"]) == 0
    (file,) = out.glob("myriadlama-mini/lives-*known_share=0.6.parquet")
    assert pl.read_parquet(file)["variant"].unique().to_list() == ["known_share=0.6"]
    assert main([*short_command[:2], "report", *short_command[2:], "--known-share", "1"]) == 2
    assert "known_share" in capsys.readouterr().err


@pytest.mark.slow
def test_runs_of_a_budget_have_the_nearest_full_run_as_control(
    small: list[str],
    make_model: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "compute", make_here)
    monkeypatch.setattr(estimating, "compute", make_here)
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    models = ",".join(str(make_model(f"step-{i}")) for i in (1, 2, 10))
    overrides = [value for value in small if not value.startswith(("model.id=", "model.name="))]
    greedy = ["decoding.samples.n_prompts=0", "decoding.canary_prompts=0", "budget=40%"]
    command = [
        "study",
        "steps",
        *overrides,
        *folders,
        *greedy,
        f"model.id={models}",
        "--axis",
        "step",
    ]
    assert main([*command, "--full", "1"]) == 0
    printed = capsys.readouterr().out
    points = pl.read_parquet(tmp_path / "results/steps/report/along.parquet")
    assert points["label"].to_list() == ["step-1", "step-2", "step-10"]
    assert points["at"].to_list() == [1, 2, 10]
    assert [value is None for value in points["estimated"]] == [
        False,
        False,
        True,
    ]  # the last in full
    assert "3 runs, 0 missing" in printed
    assert points["estimated"].drop_nulls().to_list() == pytest.approx([0.4, 0.4], abs=0.02)
    record = (tmp_path / "results/steps/step-2/estimate.json").read_text()
    assert '"control": "steps/step-10"' in record


def test_study_names_what_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "x", "fly", "model=gpt2,gpt2-xl"]) == 2
    assert "cannot fly; it can run, plan" in capsys.readouterr().err
    cases = {
        ("pythias", "model=gpt2"): ("pythia", "several values"),
        ("mine", "model=gpt2,gpt-nope"): ("gpt-nope",),
        ("mine", "model=glob(nowhere/*)"): ("nowhere", "fits nothing"),
        ("mine", "seed=glob(1*)"): ("seed=glob(1*)",),
    }
    for (name, override), words in cases.items():
        with pytest.raises(InputError, match=naming(*words)):
            study(name, [override])
    several = ["model=gpt2,smollm2-135m"]
    with pytest.raises(InputError, match=naming("reference", "gpt3")):
        study("mine", several, reference="gpt3")
    with pytest.raises(InputError, match=naming("axis", "model.size")):
        study("mine", several, axis="model.size")
    with pytest.raises(InputError, match=naming("smollm2-135m", "date")):
        study("mine", several, axis="date")
    with pytest.raises(InputError, match=naming("seed=0,1", "study")):
        compose_config(["seed=0,1"])


def test_launch_of_all_runs_is_one_job_that_runs_the_study(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["study", "sizes", "model=gpt2,llama2-70b", "cluster.hardware=H100", "--axis", "size"]
    stores = ["artifacts=s3://b/a", "results=s3://b/r"]
    runs = ["model=gpt2,llama2-70b", "cluster.hardware=H100"]

    def launched(*words: str) -> tuple[int, str]:
        code = main([*command, "launch", *words, *stores])
        out, err = capsys.readouterr()
        return code, out + err

    slurm = ["cluster=slurm", "cluster.launch.nodes=2"]
    unknown = ["cluster.hardware=null", "model.tensor_parallel=null"]
    alike = " ".join([*runs, *slurm, *stores, "--axis=size"])
    code, printed = launched("--one-job", "--dry-run", *slurm)
    assert code == 0
    assert printed.count("#SBATCH --nodes=2") == printed.count("--job-name=factsweep-sizes\n") == 1
    assert f"exec factsweep study sizes {alike};" in printed
    assert f"status='factsweep study sizes status {alike} || true'" in printed
    in_ray = launched("--one-job", "--dry-run", "--full", "0", "cluster=ray")[1]
    assert '"entrypoint": "factsweep study sizes ' in in_ray
    assert in_ray.count(" --full=0") == 1  # it may take the place of what a file says
    jobs = launched("--dry-run", "cluster=slurm")[1]
    assert jobs.count("#SBATCH --job-name=factsweep-sizes-") == 2
    refused = {
        ("--one-job", "cluster=slurm"): naming("--one-job", "cluster.launch.nodes"),
        ("--one-job", "cluster=kuberay"): naming("--one-job", "cluster=slurm", "cluster=ray"),
        ("--one-job", *slurm, *unknown): naming("model.tensor_parallel"),
        ("--full", "1", "cluster=ray", "budget=1%"): naming("--one-job"),
    }
    for words, problem in refused.items():
        code, printed = launched(*words, "--dry-run")
        assert (code, bool(re.search(problem, printed))) == (2, True), printed
    blank = ["study", "my sizes", "launch", "--one-job", "--dry-run", "cluster=ray", *runs, *stores]
    assert main(blank) == 0
    assert "factsweep study 'my sizes' cluster=ray" in capsys.readouterr().out
    assert main([*command, "plan", "--dry-run"]) == 2


def test_runs_are_in_the_order_of_their_axis_and_named_apart() -> None:
    overrides = ["model=gpt2-xl,gpt2,gpt-j-6b", "seed=0,1"]
    sizes = study("sizes", overrides, axis="size")
    assert sizes.labels == ["gpt2", "gpt2-xl", "gpt-j-6b"]
    assert [member.run.name for member in sizes.members[:2]] == [
        "sizes/gpt2-seed-0",
        "sizes/gpt2-seed-1",
    ]
    assert study("sizes", overrides).labels == ["gpt2-xl", "gpt2", "gpt-j-6b"]
    dates = study("dates", ["model=gpt2,olmo-7b"], axis="date")
    assert [round(member.at, 2) for member in dates.members] == [2017.92, 2023.16]
    assert [member.run.model.name for member in dates.members] == dates.labels
    lengths = study("lengths", ["decoding.max_tokens=5,10"])
    assert [member.run.model.name for member in lengths.members] == ["5", "10"]


def test_folders_that_fit_are_taken_in_natural_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for step in (10, 9, 100):
        (tmp_path / f"steps/step-{step}").mkdir(parents=True)
    (tmp_path / "steps/notes.txt").touch()
    for pattern, folder in (("steps/*", "./steps"), (f"{tmp_path}/steps/*", f"{tmp_path}/steps")):
        overrides = [run.overrides for run in expand_runs([f"model=glob({pattern})"])]
        assert overrides == [(f"model={folder}/step-{n}",) for n in (9, 10, 100)]


def test_every_run_is_asked_once_the_ends_first() -> None:
    for n in range(1, 40):
        order = list(coarse_first(list(range(n))))  # type: ignore[arg-type]
        assert sorted(order) == list(range(n))  # type: ignore[type-var]
        assert set(order[:2]) == {0, n - 1}


def test_studies_that_ship_have_the_models_of_their_papers() -> None:
    choices_of_model = choices("model")
    papers = {"belief-2024": "000", "belief-2025": "003"}
    for name in files("study"):
        if name.endswith("-steps"):  # revisions are on the hub
            continue
        models = [
            item.varied["model"] for item in expand_runs(_runs(name)) if "model" in item.varied
        ]
        assert set(models) <= set(choices_of_model), name
        rows = {
            **dict.fromkeys(papers, "belief"),
            **{item: item for item in ("kamel", "probelm", "distractors")},
        }
        if name in rows:
            printed = catalog.load_published(rows[name])
            rows_of_paper = printed.filter(pl.col("table").str.starts_with(papers.get(name, "")))
            assert set(models) == set(rows_of_paper["model"].drop_nulls()), name


def _runs(name: str) -> list[str]:
    from factsweep.pipeline.config.folders import content

    return list(content(files("study")[name])["runs"])


def test_lives_by_popularity_are_counted_in_tenths_where_the_set_has_it() -> None:
    ways = ["learned"] * 12 + ["always known"] * 8
    rows = [("P1", f"{i:02}", way, "b", None, [], [0.0, 1.0]) for i, way in enumerate(ways)]
    lives = pl.DataFrame(rows, curve.LIVES, orient="row")
    details = pl.DataFrame({"pair_id": lives["pair_id"], "popularity": range(20)})
    # A row for each object of a fact, and facts that not all runs have answers to.
    read_extra_tables = pl.DataFrame(
        {"pair_id": ["00", "19", "x", "y"], "popularity": [90, 0, 1, 2]}
    )
    details = pl.concat([details, read_extra_tables])
    none = Facts(*(pl.DataFrame() for _ in range(3)), {})
    report = _lives_by_popularity(
        "zero-shot", lives, replace(none, extra_tables={"details": details})
    )
    (table,) = report.tables.values()
    assert list(report.titles) == list(report.tables) == ["lives-by-popularity-zero-shot"]
    assert table.columns == ["popularity", "always known", "learned"]
    assert table.rows() == [
        ("all", 8, 12),
        *((str(i), 2 * (i > 5), 2 * (i < 6)) for i in range(10)),
    ]
    unknown = details.with_columns(popularity=pl.lit(None, pl.Float64))
    for without in (none, replace(none, extra_tables={"details": unknown})):
        assert not _lives_by_popularity("zero-shot", lives, without).tables
