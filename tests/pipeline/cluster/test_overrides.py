"""Overrides arrive byte for byte, whatever reads the command between launching and the driver."""

import json
import shlex
import subprocess
from collections.abc import Callable
from subprocess import list2cmdline
from types import SimpleNamespace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from factsweep.pipeline.cli import main
from factsweep.pipeline.cluster import order
from factsweep.pipeline.cluster.launchers import LAUNCHERS
from factsweep.pipeline.config import settings
from factsweep.pipeline.config.settings import load

STORES = ("artifacts=s3://sweeps/artifacts", "results=s3://sweeps/results")
HOSTILE = [
    'decoding.stop=["\\n"]',
    'decoding.stop=["\n", "\t", "\\"]',
    "run_name='a \"b\" $HOME $(id) `id`; id & id | id > /dev/null < /etc/passwd'",
    "run_name='#1 ~ ~root %41 %% ! * ? {a,b} [a-z] \\\\ \\ München 東京 👍'",
    "~cluster.launch.options",
    *(f"run_name={value}" for value in ("=", "~", "~root:~", "%7E", "'", '"', "\\", " ", "\n")),
]
# What a command line can hold: not NUL, and no option, which the verb `launch` would not take.
ANY = st.text("".join(map(chr, range(1, 0x180))) + "東\u2028\ufeff👍", min_size=1, max_size=30)
NASTY = st.text("\"'\\$`;&|<>(){}[]*?!#~%=,: \t\n\rnü東a", min_size=1, max_size=30)
OVERRIDES = st.lists((ANY | NASTY).filter(lambda each: not each.startswith("-")), max_size=6)


def words(shell: list[str], line: str) -> list[str]:
    """The words that a shell makes of a line, without the command that they begin with."""
    said = line.removeprefix("factsweep ")
    assert said != line
    shown = subprocess.run([*shell, f"printf '%s\\0' {said}"], capture_output=True, check=True)
    return shown.stdout.decode().split("\0")[:-1]


def as_it_is(line: str) -> str:
    return line


def split_by_kuberay(line: str) -> str:
    """As older operators do: split as a shell would, joined again by blanks."""
    return " ".join(shlex.split(line))


def driven(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The overrides that a run is asked with that is started with these arguments."""
    found: list[str] = []

    def composed(overrides: list[str]) -> SimpleNamespace:
        found.extend(overrides)
        return SimpleNamespace(budget=None, table=None)

    monkeypatch.setattr(settings, "load", composed)  # hostile ones fit no conf/
    monkeypatch.setattr("factsweep.pipeline.runs.run.run", lambda _: None)
    monkeypatch.setattr("factsweep.pipeline.commands.run._print_card", lambda _: 0)
    assert main(arguments) == 0
    return found


@pytest.mark.parametrize("joined", [list2cmdline, shlex.join])  # as versions of Ray do
@pytest.mark.parametrize("operator", [as_it_is, split_by_kuberay])
@given(overrides=OVERRIDES)
def test_encoded_command_passes_the_operator_bash_ray_and_sh_unchanged(
    operator: Callable[[str], str], joined: Callable[[list[str]], str], overrides: list[str]
) -> None:
    seen = words(["bash", "-ce", "--"], operator(order.encoded_command(overrides)))
    again = words(["sh", "-c"], "factsweep " + joined(seen))
    assert again[:2] == ["run", "--percent-encoded"]
    assert order.decoded(again[2:]) == overrides


@pytest.mark.parametrize("shell", [["sh", "-c"], ["bash", "-c"]])
@given(overrides=OVERRIDES)
def test_command_passes_one_shell_unchanged(shell: list[str], overrides: list[str]) -> None:
    assert words(shell, order.command(overrides)) == ["run", *overrides]


def test_kuberay_hostile_overrides_reach_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["cluster=kuberay", *STORES]
    manifest = yaml.safe_load(LAUNCHERS["kuberay"].rendered(load(given), [*given, *HOSTILE]))
    line = split_by_kuberay(manifest["spec"]["entrypoint"])
    seen = words(["bash", "-c"], line)
    seen = words(["sh", "-c"], "factsweep " + list2cmdline(seen))
    assert driven(seen, monkeypatch) == [*given, *HOSTILE]
    readable = manifest["metadata"]["annotations"]["factsweep/command"]
    assert shlex.split(readable) == ["factsweep", "run", *given, *HOSTILE]


def test_ray_hostile_overrides_reach_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["cluster=ray", *STORES]
    job = json.loads(LAUNCHERS["ray"].rendered(load(given), [*given, *HOSTILE]))
    assert driven(words(["sh", "-c"], job["entrypoint"]), monkeypatch) == [*given, *HOSTILE]


def test_slurm_hostile_overrides_reach_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["cluster=slurm", *STORES]
    script = LAUNCHERS["slurm"].rendered(load(given), [*given, *HOSTILE])
    start = script.index("sweep() {")
    sweep = script[start : script.rindex("; }\n", start, script.index("\nset -euo", start)) + 3]
    shown = subprocess.run(
        ["bash", "-c", f"exec() {{ shift; printf '%s\\0' \"$@\"; }}\n{sweep}\nsweep"],
        capture_output=True,
        check=True,
    )
    seen = shown.stdout.decode().split("\0")[:-1]
    assert driven(seen, monkeypatch) == [*given, *HOSTILE]


def test_secret_in_an_encoded_override_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    secret = "run_name='x http://me:wJ/plan%20ted@proxy'"
    assert main(["launch", "--dry-run", "cluster=kuberay", *STORES, secret]) == 2
    out, err = capsys.readouterr()
    assert "ted@proxy" not in out + err


def test_doctor_is_launched_in_place_of_a_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("slurm", "ray", "kuberay", "local"):
        given = [f"cluster={kind}", *STORES, "model.tensor_parallel=1"]
        assert main(["launch", "--dry-run", "--doctor", *given]) == 0
        out = capsys.readouterr().out
        assert "factsweep doctor " in out
        assert "factsweep run" not in out
