"""One way to give arguments: the same names in every verb, and a sentence for what is mistyped."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from factsweep.operators.tables.formats import markdown
from factsweep.pipeline.cli import main
from factsweep.pipeline.commands.arguments import fit_to_terminal
from tests.builders import refused
from tests.messages import naming

ROOT = Path(__file__).parents[3]
READERS = (
    ["compare", "a", "b"],
    ["report", "a"],
    ["export", "a"],
    ["baseline", "show", "demo"],
    ["baseline", "accept", "demo", "a"],
    ["why", "a", "b"],
    ["verify", "--all"],
)


@pytest.mark.parametrize("verb", READERS, ids=" ".join)
def test_every_verb_takes_places_anywhere(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n_words = 2 if verb[0] == "baseline" else 1
    places = [f"artifacts={tmp_path}", f"results={tmp_path}"]
    assert main([*verb[:n_words], *places, *verb[n_words:]]) == 2
    err = capsys.readouterr().err
    assert "cannot take" not in err
    assert str(tmp_path) in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["rnu"], "there is no verb 'rnu' (did you mean run?); see factsweep --help."),
        (["baseline", "acept"], "there is no action 'acept' (did you mean accept?); see"),
        (["export", "a", "--format", "cvs"], "there is no format 'cvs' (did you mean csv?); see"),
        (["verify", "--repiar"], "--help. Did you mean --repair?"),
        (["plan", "modle=gpt2"], "there is no key modle in conf/; `factsweep run --help` lists"),
        (["plan", "modle=gpt2"], "Did you mean model?"),
        (["plan", "prompt.stlye=mask"], "Did you mean prompt.style?"),
        (["run", "gpt2"], "run cannot take 'gpt2': it is no key=value; see"),
        (["plan", "gpt2"], "has no run gpt2"),
        (["compare", "a"], "compare needs SECOND; see factsweep compare --help."),
        (["compare"], "compare needs FIRST and SECOND; see"),
        (["catalog"], "catalog needs ACTION (list, fetch, verify); see factsweep catalog --help."),
        (["baseline"], "baseline needs ACTION (accept, show); see"),
        (["describe"], "describe needs NAME; see factsweep describe --help."),
        (
            ["build", "myriadlama"],
            "build myriadlama needs --facts, --templates, --labels and --out; see",
        ),
        (["baseline", "show", "demo", "results=x"], "factsweep baseline accept demo RUN results=x"),
        (["compare", "a", "b", "apha=0.1"], "Did you mean alpha?"),
        (["report", "seed=1"], "report cannot take seed=; it takes artifacts= and results=."),
        (["report", "--results", "x"], "report has no --results; write results=…"),
        (["baseline", "accept", "demo"], "baseline accept needs ACCEPTED: a night, such as"),
        (["compare", "a", "b", "c"], "compare cannot take 'c': it is no key=value"),
        (["catalog", "list", "a", "b"], "catalog cannot take 'b'; see factsweep catalog --help."),
        (["export", "a", "results=nowhere"], "factsweep: nowhere has no run a; it has none."),
        (["build", "facts", "a.csv", "model=m"], "it is an option, if there is one: --model m"),
    ],
)
def test_what_is_mistyped_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in refused(capsys, *arguments)


def test_compare_takes_a_key_as_its_messages_have_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"results={tmp_path}"
    sentence = refused(capsys, "compare", "a", "b", "comparison.alpha=2", place)
    assert re.search(naming("comparison.alpha=2", "less than 1"), sentence)
    assert "has no run a" in refused(capsys, "compare", "a", "b", "comparison.alpha=0.1", place)


def test_no_verb_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 2
    assert "130  stopped by Ctrl-C or SIGTERM" in capsys.readouterr().err


HELP = [
    "run",
    "plan",
    "status",
    "verify",
    "score",
    "compare",
    "report",
    "export",
    "published",
    "model",
]


@pytest.mark.parametrize("verb", ["", *HELP, "nightly", "baseline", "catalog", "build", "describe"])
def test_help_fits_80_columns(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*filter(None, [verb]), "--help"])
    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.splitlines()), out
    assert verb or all(f"    {name} " in out for name in (*HELP, "catalog", "nightly"))


def test_help_of_run_has_groups_keys_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    out = capsys.readouterr().out
    assert re.search(r"(?s)prompt: 1-shot .* zero-shot", out)
    assert "decoding.samples.n_answers" in out
    assert "\n  factsweep run sweep=demo\n" in out


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("factsweep ru", {"run"}),
        ("factsweep run sweep=d", {"sweep=demo", "sweep=distractors"}),
        ("factsweep run prompt=zero", {"prompt=zero-shot"}),
        ("factsweep run decoding.samples.n_p", {"decoding.samples.n_prompts="}),
        ("factsweep why art", {"artifacts="}),
        ("factsweep verify --re", {"--repair"}),
        ("factsweep published llama3-70", {"llama3-70b"}),
    ],
)
def test_completion_knows_verbs_keys_and_choices(
    line: str, expected: set[str], tmp_path: Path
) -> None:
    output = tmp_path / "said"
    shell = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_SHELL": "zsh",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(output),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    command = [sys.executable, "-m", "factsweep.pipeline.cli"]
    subprocess.run(command, env={**os.environ, **shell}, check=False, capture_output=True)
    assert {completion.split(":")[0] for completion in output.read_text().split("\x0b")} == expected


@pytest.mark.parametrize("target", ["sweep", "plan", "status", "verify"])
def test_make_without_a_model_says_so_before_anything_is_installed(target: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("MODEL", "MAKEFLAGS")}
    command = ["make", "-j2", "-C", str(ROOT), target, "PYTHON=false"]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert "MODEL is missing; one of:" in process.stderr
    assert "setup" not in process.stderr


def make_words(*variables: str) -> list[str]:
    """The words that `make sweep` gives to `factsweep launch`."""
    environment = {k: v for k, v in os.environ.items() if k not in ("RUN", "MAKEFLAGS")}
    command = ["make", "-n", "-C", str(ROOT), "sweep", "PYTHON=true", *variables]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    (line,) = (line for line in process.stdout.splitlines() if "factsweep launch" in line)
    return shlex.split(line)[2:]


def test_make_sweep_names_a_run_as_launch_does_unless_it_is_given_a_name() -> None:
    words = ["model=opt-1.3b", "benchmark=kamel-mini", "sweep=paper", "cluster=local"]
    variables = ["MODEL=opt-1.3b", "BENCHMARK=kamel-mini"]
    assert make_words(*variables) == words
    assert "run_name=mine" in make_words(*variables, "RUN=mine")


def test_model_show_is_yaml_and_a_prompt_as_the_model_reads_it(
    small: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (folder,) = (
        override.partition("=")[2] for override in small if override.startswith("model.id=")
    )
    of_model = {"architecture": "decoder", "billions_of_parameters": 1, "max_model_len": 512}
    overrides = [*(f"model.{name}={value}" for name, value in of_model.items()), "prompt=zero-shot"]
    assert main(["model", "show", folder, *overrides]) == 0
    out = capsys.readouterr().out
    assert yaml.safe_load(out)["max_model_len"] == 512
    assert re.search(r"\n# zero-shot, \d+ tokens: 'Predict the \[MASK\]", out)


SETTINGS = ["zero-shot", "4-random", "4-relation", "4-template", "masked"]
CARD = pl.DataFrame(
    {"metric": ["Acc@1", "range draw=pair"]}
    | {name: [f".1{n}72 (.1328–.2000)", f".{n}594"] for n, name in enumerate(SETTINGS)}
)


@pytest.mark.parametrize("width", [50, 80, 100])
def test_wide_table_falls_into_parts_that_fit(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = f"before\n\n{markdown(CARD)}\nafter"
    lines = fit_to_terminal(text).split("\n")
    assert max(map(len, lines)) <= width
    assert (lines[0], lines[-1]) == ("before", "after")
    heads = [line for line in lines if line.startswith("| metric")]
    assert len(heads) == {50: 3, 80: 2, 100: 1}[width]
    assert all(any(name in head for head in heads) for name in SETTINGS)


def test_long_name_goes_on_in_the_next_line_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name = "fake-smollm2-135m-myriadlama-mini-4-template"
    row = {
        "artifact": "generations/5117f487de04d727 (open)",
        "MB": "0.05",
        "needed by": f"run {name}",
        "last used": "2026-11-23",
    }
    lines = fit_to_terminal(markdown(pl.DataFrame([row]))).split("\n")
    assert max(map(len, lines)) <= 80
    cells = [line.split("|") for line in lines if line.startswith("|")]
    assert cells[0][1].strip() == "artifact"
    assert len(cells[0]) == 6
    assert name in "".join(row_cells[3].strip() for row_cells in cells)


def test_table_repeats_the_names_of_its_rows_and_keeps_intervals_on_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    narrow = markdown(CARD.select("metric", "zero-shot"))
    assert fit_to_terminal(narrow) == narrow
    columns = ["metric", "one", "other", "difference", "95 % interval", "p (Holm)", "Cohen's h"]
    row = ["Acc@1", *[".7688"] * 3, "+.0528 to -.1589", ".0044", "+.2712"]
    lines = fit_to_terminal(markdown(pl.DataFrame([row], columns, orient="row"))).split("\n")
    assert max(map(len, lines)) <= 80
    assert sum("+.0528 to -.1589" in line for line in lines) == 1
    monkeypatch.setenv("COLUMNS", "60")
    rows = [
        {"setting": "zero-shot", "metric": metric, "estimate": "." + "1" * 20, "note": "b" * 20}
        for metric in ("Acc@1", "SD")
    ]
    heads = [
        line
        for line in fit_to_terminal(markdown(pl.DataFrame(rows))).split("\n")
        if "| set" in line
    ]
    assert len(heads) == 2
    assert all("| metric" in head for head in heads)


WORDS = st.lists(st.text("abcdefgh", min_size=1, max_size=12), max_size=8).map(" ".join)


@example([("", "a" * 12, "a a aaaaaa", "a" * 12, "a" * 12)])
@given(st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS, WORDS), min_size=1, max_size=4))
def test_any_table_keeps_its_words(rows: list[tuple[str, ...]]) -> None:
    table = pl.DataFrame(rows, schema=["q", "r", "s", "t", "u"], orient="row")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "60")
        lines = fit_to_terminal(markdown(table)).split("\n")
    assert max(map(len, lines)) <= 60
    printed = " ".join(lines).replace("|", " ").split()
    first = {word for row in rows for word in row[0].split()}  # it may stand in each part
    given_words = sorted(word for row in rows for cell in row[1:] for word in cell.split())
    kept_words = [word for word in printed if word in given_words]
    for word in given_words:
        assert word in kept_words
        if word not in first:
            kept_words.remove(word)
