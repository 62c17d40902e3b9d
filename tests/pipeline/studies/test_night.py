"""nightly: planted damage is found and named; what changed nothing is told from what cannot tell.

The answers come from no model: they are made here and scored, so that what is planted is known.
"""

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from factsweep.operators.errors import DecodingError, InputError
from factsweep.operators.methods.method import Report
from factsweep.operators.metrics.comparing.verdict import Verdict
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.compose import choices
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.results import report
from factsweep.pipeline.results.compare import ComparedRuns
from factsweep.pipeline.stages.plan import Plan, build_plan
from factsweep.pipeline.studies import night as nightly
from factsweep.pipeline.studies import study as study_module
from factsweep.pipeline.studies.study import study
from tests.messages import naming
from tests.pipeline.here import labelled_prompts

pytestmark = pytest.mark.usefixtures("plain")
Nightly = Callable[..., str]
Answers = Callable[..., str]

RELATIONS = ("P17", "P30", "P36", "P37", "P103", "P407", "P495", "P1376")
DAMAGED = "P36"


@pytest.fixture(scope="session")
def slice_of() -> Callable[[int], list[str]]:
    """The overrides of a slice of the mini set: 8 relations of 10 pairs, or 4 of fewer."""

    def slice_of(pairs: int) -> list[str]:
        relations = RELATIONS if pairs == 10 else RELATIONS[:4]
        return [
            "prompt=zero-shot",
            "prompt.templates=manual",
            f"benchmark.relations=[{','.join(relations)}]",
            f"benchmark.pairs_per_relation={pairs}",
            "benchmark.names_per_subject=1",
            "metrics.n_draws=100",
            "metrics.n_rounds=50",
            "metrics.analyses=[]",
        ]

    return slice_of


@pytest.fixture
def written(slice_of: Callable[[int], list[str]], nightly_file: Callable[..., str]) -> Nightly:
    """Writes a nightly on so many pairs a relation; returns its file."""

    def written(pairs: int = 10, runs: list[list[str]] | None = None, **changes: Any) -> str:
        run_overrides = [slice_of(pairs)] if runs is None else runs
        return nightly_file(f"planted{pairs}", run_overrides, **changes)

    return written


@pytest.fixture
def answers(slice_of: Callable[[int], list[str]], tmp_path: Path) -> Answers:
    """Writes answers to a slice: two of three templates are right, but in one relation none."""

    def answers(pairs: int = 10, damaged: str | None = None) -> str:
        prompts = labelled_prompts(load([*slice_of(pairs), f"artifacts={tmp_path}/artifacts"]))
        template = pl.col("template_id").str.extract(r"(\d+)$").cast(pl.Int64)
        wrong = (template % 3 == 0) | (pl.col("pair_id").str.starts_with(f"{damaged}."))
        path = tmp_path / f"{damaged}{pairs}.parquet"
        text = pl.when(wrong).then(pl.lit("no idea")).otherwise("label")
        prompts.select("prompt_id", text=text).write_parquet(path)
        return str(path)

    return answers


@pytest.fixture
def night(tmp_path: Path) -> Callable[[str, str, int], int]:
    """Runs a night of a month on answers; returns the exit code."""
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]

    def night(nightly_path: str, answers: str, day: int) -> int:
        command = ["nightly", nightly_path, f"answers={answers}", *folders]
        return main([*command, "--date", f"2026-11-{day:02}"])

    return night


@pytest.fixture
def accept(tmp_path: Path) -> Callable[[str, str], int]:
    """Accepts a night as the baseline; returns the exit code."""
    results = [f"results={tmp_path}/results"]
    return lambda nightly_path, run: main(["baseline", "accept", nightly_path, run, *results])


Act = Callable[..., int]


def test_nightly_planted_damage_exits_3_and_names_relation_and_facts(
    written: Nightly,
    answers: Answers,
    night: Act,
    accept: Act,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    nightly_path, right, wrong = written(), answers(), answers(damaged=DAMAGED)
    assert night(nightly_path, right, 1) == 4
    advice = re.search(r"factsweep (baseline accept .*)", capsys.readouterr().out)
    assert advice is not None
    assert main(shlex.split(advice[1])) == 0
    assert night(nightly_path, right, 2) == 0
    assert "0 lost, 0 gained" in capsys.readouterr().out
    assert night(nightly_path, wrong, 3) == 3
    printed = capsys.readouterr().out
    assert re.search(rf"regression: acc_at_1.* acc_at_1 in {DAMAGED} fell by", printed)
    assert "10 lost, 0 gained" in printed

    results = [f"results={tmp_path}/results"]
    folder = tmp_path / "results" / "planted10-2026-11-03"
    verdict = json.loads((folder / "verdict.json").read_text())
    assert (verdict["outcome"], verdict["exit_code"]) == ("regression", 3)
    assert verdict["baseline"]["run"] == "planted10-2026-11-01"
    (setting,) = verdict["settings"]
    table = pl.read_csv(Path(setting["tables"]) / "tables" / "facts.csv")
    subjects = table.select(pl.format("{} ({})", "subject", "relation")).to_series().to_list()
    assert sorted(setting["lost"]) == sorted(subjects)
    assert table["pair_id"].str.extract(r"^(P\d+)\.").unique().to_list() == [DAMAGED]
    assert (table["right after"] == 0).all()
    relations = pl.read_csv(Path(setting["tables"]) / "tables" / "gained_and_lost.csv")
    worst = relations.filter(pl.col("relation").str.starts_with(DAMAGED), known="oracle")
    assert worst.select("facts", "gained", "lost").row(0) == (10, 0, 10)
    # The damage was never accepted: the next night is compared with the first again.
    assert night(nightly_path, right, 4) == 0
    capsys.readouterr()
    # A baseline says nothing of itself, nor of a night before it; both are left as they are.
    accepted = (tmp_path / "results" / "planted10-2026-11-01" / "verdict.json").read_bytes()
    assert night(nightly_path, wrong, 1) == 2
    assert "planted10-2026-11-01 is its own baseline, accepted by" in capsys.readouterr().err
    assert (tmp_path / "results" / "planted10-2026-11-01" / "verdict.json").read_bytes() == accepted
    assert main(["baseline", "accept", "planted10-2026-11-04", *results]) == 0
    assert night(nightly_path, right, 3) == 2
    assert "of a date before its baseline planted10-2026-11-04, " in capsys.readouterr().err


@pytest.mark.slow
def test_nightly_of_several_runs_the_worst_decides(
    written: Nightly,
    answers: Answers,
    slice_of: Callable[[int], list[str]],
    accept: Act,
    tmp_path: Path,
) -> None:
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    files = {"right": answers(), "damaged": answers(damaged=DAMAGED)}

    def night(day: int, **models: str) -> int:
        runs = [
            [*slice_of(10), f"model.name={model}", f"answers={files[kind]}"]
            for model, kind in models.items()
        ]
        return main(["nightly", written(runs=runs), *folders, "--date", f"2026-11-0{day}"])

    assert night(1, one="right", other="right") == 4
    accept(written(), "planted10-2026-11-01")
    assert night(2, one="right", unknown="right") == 4
    assert night(3, one="right", unknown="right", other="damaged") == 3
    verdict = json.loads((tmp_path / "results/planted10-2026-11-03/verdict.json").read_text())
    assert [setting["outcome"] for setting in verdict["settings"]] == [
        "no change",
        "not enough evidence",
        "regression",
    ]


@pytest.mark.slow
def test_nightly_other_relations_than_the_baseline_is_not_judged(
    tmp_path: Path,
    written: Nightly,
    answers: Answers,
    night: Act,
    accept: Act,
    slice_of: Callable[[int], list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    everything = pl.read_parquet(answers())
    for day, relations in ((1, RELATIONS[:1]), (2, RELATIONS[1:])):
        nightly_path = written(
            runs=[[*slice_of(10), f"benchmark.relations=[{','.join(relations)}]"]]
        )
        in_relations = pl.col("prompt_id").str.split(".").list.first().is_in(relations)
        everything.filter(in_relations).write_parquet(tmp_path / "mine.parquet")
        assert night(nightly_path, str(tmp_path / "mine.parquet"), day) == 4
        accept(nightly_path, f"planted10-2026-11-{day:02}")
    assert "measured other relations; accept a new one" in capsys.readouterr().out


@pytest.mark.slow
def test_nightly_other_prompts_than_the_baseline_is_not_judged(
    written: Nightly, answers: Answers, night: Act, accept: Act, capsys: pytest.CaptureFixture[str]
) -> None:
    nightly_path = written()
    night(nightly_path, answers(), 1)
    accept(nightly_path, "planted10-2026-11-01")
    fewer, right = written(5), answers(5)
    Path(nightly_path).write_text(Path(fewer).read_text())
    assert night(nightly_path, right, 2) == 4
    assert "the baseline was asked differently (facts " in capsys.readouterr().out
    Path(nightly_path).write_text(Path(fewer).read_text().replace("zero-shot", "4-template"))
    assert night(nightly_path, right, 3) == 4
    assert "the baseline planted10-2026-11-01/" in capsys.readouterr().out


def test_judge_noisy_decoding_is_no_evidence_of_no_change() -> None:
    pair: Any = SimpleNamespace(prompt_differences=(), departures=())
    result = ComparedRuns(
        pair, "", Report({}), Verdict("no change", "It is the same."), (0.0, 0.05)
    )
    assert nightly.judge(result, 0.05) == ("no change", "It is the same.")
    outcome, reason = nightly.judge(replace(result, flip_rates=(0.0, 0.06)), 0.05)
    assert outcome == "not enough evidence"
    assert "above max_flip_rate=0.05" in reason
    worse = Verdict("regression", "It fell.")
    noisy = replace(result, verdict=worse, flip_rates=(0.0, 0.06))
    assert nightly.judge(noisy, 0.05)[0] == "regression"


def fingerprints(run: Run) -> dict[str, str]:
    (branch, *_) = build_plan(run).branches
    assert branch.repeated_answers is not None
    artifacts = (
        branch.prompts,
        branch.answers,
        branch.extra_outputs[0],
        branch.repeated_answers,
        branch.metrics,
    )
    return {artifact.stage: artifact.fingerprint for artifact in artifacts}


@pytest.mark.parametrize(
    ("fresh", "decoded"),
    [(True, {"generations", "samples", "canary", "metrics"}), (False, {"canary", "metrics"})],
)
def test_runs_another_night_decodes_again_what_the_nightly_says(
    written: Nightly, small: list[str], fresh: bool, decoded: set[str]
) -> None:
    nightly_path = written(runs=[[]], fresh=fresh)
    first, second = (nightly.runs(nightly_path, small, date(2026, 11, day))[0] for day in (1, 2))
    same_night = nightly.runs(nightly_path, small, date(2026, 11, 1))[0]
    first_prints, second_prints = fingerprints(first), fingerprints(second)
    assert {
        stage for stage in first_prints if first_prints[stage] != second_prints[stage]
    } == decoded
    assert fingerprints(same_night) == first_prints
    assert first.name == "planted10-2026-11-01/tiny-myriadlama-mini"


def test_nightly_nothing_changed_reuses_the_answers_and_says_so(
    written: Nightly,
    small: list[str],
    accept: Act,
    compute_here: Callable[[Run], Plan],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The stages without Ray: it is no part of what is asked here.
    def here(run: Run) -> pl.DataFrame:
        return report.write(compute_here(run), {"total": 0})

    monkeypatch.setattr(study_module, "compute", here)
    wide = {"smallest_difference": 0.3, "min_facts": 13}
    nightly_path = written(runs=[small], fresh=False, comparison=wide)
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    assert main(["nightly", nightly_path, *folders, "--date", "2026-11-01"]) == 4
    accept(nightly_path, "planted10-2026-11-01")
    assert main(["nightly", nightly_path, *folders, "--date", "2026-11-02"]) == 0
    printed = capsys.readouterr().out
    # Who commits to this checkout meanwhile has changed something.
    found = re.findall(r"changed since: (\w+)", printed)
    assert found in (["weights"], ["commit"])  # "nothing has changed since: weights, engine, …"
    assert "the answers are the baseline's" in printed
    assert re.search(naming("noise floor", "0.0000"), printed)
    found = [len(list((tmp_path / "artifacts" / s).iterdir())) for s in ("generations", "canary")]
    assert found == [1, 2]


def test_nightly_run_that_fails_ends_the_night_when_the_others_are_measured(
    written: Nightly,
    small: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured = []

    def compute(run: Run) -> None:
        measured.append(run.model.name)
        if run.model.name != "third":  # a study begins with the last, and then goes to the first
            kind = {"first": DecodingError, "second": InputError}[run.model.name]
            raise kind(f"no engine of {run.model.name} was ready.")

    monkeypatch.setattr(study_module, "compute", compute)
    nightly_path = written(
        runs=[[*small, f"model.name={name}"] for name in ("first", "second", "third")]
    )
    assert main(["nightly", nightly_path, f"results={tmp_path}/results"]) == InputError.exit_code
    assert measured == ["third", "first", "second"]
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert re.search(
        naming("first on", "engine of first", "second on", "engine of second"), sentence
    )
    assert not list(tmp_path.glob("results/*/verdict.json"))


def test_runs_those_of_a_study_are_runs_of_a_night(written: Nightly) -> None:
    nightly_path = written(
        runs=[["study=belief-2024", "benchmark.pairs_per_relation=6"], ["model=smollm2-135m"]]
    )
    runs = nightly.runs(nightly_path, ["seed=3"], date(2026, 11, 1))
    members = study("belief-2024", []).members
    assert {run.model.name for run in runs[:-1]} == {run.run.model.name for run in members}
    assert {run.seed for run in runs} == {3}
    assert {run.benchmark.pairs_per_relation for run in runs[:-1]} == {6}


@pytest.mark.parametrize("name", choices("nightly"))
def test_conf_every_nightly_composes(name: str) -> None:
    assert nightly.runs(name, [], date(2026, 11, 1))


def test_runs_what_cannot_be_compared_is_refused_before_anything_runs(
    written: Nightly, subtests: pytest.Subtests
) -> None:
    with pytest.raises(InputError, match=naming("'dem0'", "conf/nightly/", "llama3")):
        nightly.load("dem0")
    for runs, problem in (
        ([], "has no runs; give it one"),
        ([[], []], "has two runs of smollm2-135m on myriadlama-mini; make them one"),
        (
            [["model.name=SmolLM2-135m"], []],
            "has two runs named .*smollm2-135m-myriadlama-mini; give",
        ),
        ([["benchmark=kamel-mini"]], "cannot compare smollm2-135m on kamel-mini"),
        ([["study=kamel", "study=probelm"]], "study=kamel study=probelm: .* a line for each"),
        ([["study=belief"]], "no study 'belief' in conf/study/, .*belief-2024"),
        ([["budget=5%"]], "asks all prompts, and budget=5% a part; leave it out"),
    ):
        with subtests.test(problem), pytest.raises(InputError, match=problem):
            nightly.runs(written(runs=runs), [], date(2026, 11, 1))


def test_runs_every_fault_of_a_nightly_is_named_at_once(
    written: Nightly, subtests: pytest.Subtests
) -> None:
    overrides = [["model=smollm2-13m", "sede=1", "decoding.max_tokens=-1"], ["benchmark=foo"]]
    in_file = ["planted10.yaml.fresh='maybe'", "max_flip_rate=7", "comparison.alpha=3"]
    in_runs = ["'smollm2-13m'", "sede", "decoding.max_tokens=-1", "'foo'"]
    changes = {"fresh": "maybe", "max_flip_rate": 7, "comparison": {"alpha": 3}}
    for fields, faults in (({}, in_runs), (changes, [*in_file, *in_runs])):
        with subtests.test(faults), pytest.raises(InputError) as refused:
            nightly.runs(written(runs=overrides, **fields), [], date(2026, 11, 1))
        assert [fault for fault in faults if fault not in str(refused.value)] == []


def test_page_prints_a_nightly_that_can_be_run(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "nightly.md").read_text()
    examples = re.findall(r"```yaml\n# (\S+)\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in examples] == ["mine.yaml"]
    for name, content in examples:
        (tmp_path / name).write_text(content)
        runs = nightly.runs(str(tmp_path / name), [], date(2026, 11, 20))
        assert [run.name for run in runs] == ["mine-2026-11-20/smollm2-135m-myriadlama-mini"]
    (tmp_path / "least.yaml").write_text("runs: [[model=smollm2-135m]]")
    least = nightly.load(str(tmp_path / "least.yaml"))
    assert (least.fresh, least.max_flip_rate, least.comparison) == (False, 0.05, {})
