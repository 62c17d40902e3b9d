"""The batch script of Slurm: its header, its shell, and a job that is preempted and resumes."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from factsweep.operators.engines.fake import WISH, FakeEngine
from factsweep.operators.errors import InputError
from factsweep.pipeline.cli import main
from factsweep.pipeline.cluster import launchers
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.results.past_runs import branches
from factsweep.pipeline.runs.preflight import check_servers
from factsweep.pipeline.stages.plan import Plan, build_plan
from tests.builders import lines_of
from tests.messages import naming

# Stand-ins, since there is no Slurm here: steps run on this machine, a requeue is a line in a log.
STAND_INS = {
    "srun": """
        echo "srun $(tr "\\n" " " <<<"$*")" >>"$LOG"
        while [[ $1 == -* ]]; do shift; done; exec "$@"
    """,
    "scontrol": """
        if [[ $1 == requeue ]]; then echo "requeue $2" >>"$LOG"; else tr , "\\n" <<<"$3"; fi""",
    # Signals steps: processes of "srun" that wait for their Ray.
    "scancel": 'echo "scancel $*" >>"$LOG"; pkill -TERM -P "$PPID" -f session_latest',
    # The job finds the stand-ins before the tools of its own environment.
    "sbatch": """
        sed "s#^sweep()#export PATH=${0%/*}:\\$PATH; &#" >"$LOG.job"; echo "Submitted batch job 7"
    """,
    # The second node is slow at first, and Ray there gives up.
    "ray": f"""
        if [[ $* == start* && $* != *--head* ]] && mkdir "$LOG.slow" 2>/dev/null; then
            echo "Exception: No node info found for head node" >&2; exit 1
        fi
        exec {Path(sys.executable).parent}/ray "$@"
    """,
}
HOST = subprocess.run(
    ["hostname", "-I"], capture_output=True, text=True, check=True
).stdout.split()[0]
LIMIT_S = 600
URLS = "model.endpoint.urls=[http://a/v1,http://b/v1]"


def rendered(*overrides: str) -> str:
    all_overrides = ["cluster=slurm", *overrides]
    return launchers.slurm_job(load(all_overrides), all_overrides)


def header(*overrides: str) -> set[str]:
    lines = rendered(*overrides).splitlines()
    return {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")}


FOUR = ("model=llama3-70b", "model.replicas.max=3")  # GPUs per replica


@pytest.mark.parametrize(
    ("overrides", "options"),
    [
        (("model=llama3-8b",), {"--nodes=2", "--gpus-per-node=4"}),
        (FOUR, {"--nodes=3", "--gpus-per-node=4"}),
        ((*FOUR, "cluster.launch.gpus_per_node=8"), {"--nodes=2", "--gpus-per-node=8"}),
        (("model=llama3-70b", "model.pipeline_parallel=2"), {"--nodes=2", "--gpus-per-node=4"}),
        (("cluster.device=cpu", "model.replicas.max=2"), {"--nodes=2"}),
    ],
)
def test_rendered_replicas_fill_nodes(overrides: tuple[str, ...], options: set[str]) -> None:
    lines = header(*overrides)
    assert {line for line in lines if line.startswith(("--nodes", "--gpu"))} == options


def test_rendered_replica_larger_than_a_node_is_refused() -> None:
    with pytest.raises(InputError, match=naming("4 GPUs", "gpus_per_node=2", "raise")):
        rendered("model=llama3-70b", "cluster.launch.gpus_per_node=2")


def test_rendered_has_the_options_that_are_given_and_no_others() -> None:
    options = header("cluster.launch.partition=gpu", 'cluster.launch.options=["--qos=low"]')
    assert {"--partition=gpu", "--qos=low", "--requeue", "--signal=B:USR1@180"} <= options
    assert not any(option.startswith(("--account", "--mem")) for option in options)


def test_rendered_option_with_a_line_break_is_refused() -> None:
    with pytest.raises(InputError, match=naming("--account", "line break")):
        rendered("cluster.launch.account='lab\ntouch /tmp/here'")


def test_rendered_names_the_type_of_gpu_the_account_and_the_interface() -> None:
    fields = ("gpu_type=a100", "account=lab", "interface=ib0", "requeues=2", "metrics_port=8090")
    script = rendered("model=llama3-8b", *(f"cluster.launch.{field}" for field in fields))
    assert "#SBATCH --gpus-per-node=a100:4\n" in script
    assert "#SBATCH --account=lab\n" in script
    assert "\ninterface=ib0\nmetrics_port=8090\nrequeues=2\n" in script


def test_start_counts_as_in_vain_only_where_the_status_is_known(tmp_path: Path) -> None:
    part = launchers.BODY.split("# A sweep that is no further")[1].split("# Nobody else's Ray")[0]
    counts = []
    for status in ("echo a", "exit 1", "exit 1", "echo a", "echo a", "echo b"):
        setting = f"set -euo pipefail; logs={tmp_path} requeues=9 status='{status}'\n#"
        subprocess.run(["bash", "-c", setting + part], check=True)
        counts.append(int((tmp_path / "progress").read_text().split()[0]))
    assert counts == [0, 0, 0, 1, 2, 0]


def test_job_whose_store_does_not_answer_goes_back_into_the_queue(tools: Path) -> None:
    """With code 75, and with no other: its own shell functions end the script."""
    finish = (
        "finish() {"
        + launchers.BODY.split("finish() {")[1].split("# A sweep that is no further")[0]
    )
    end = "sweep &\n" + launchers.BODY.split("sweep &\n")[1]
    for code, queued in ((75, ["requeue 7"]), (2, []), (0, []), (1, [])):
        script = f"set -euo pipefail; requeue=; driver=; sweep() {{ exit {code}; }}\n{finish}{end}"
        environment = {**os.environ, "SLURM_JOB_ID": "7"}
        process = subprocess.run(["bash", "-c", script], check=False, env=environment)
        assert process.returncode == code
        assert lines_of(tools) == queued
        tools.unlink(missing_ok=True)


SERVED = (
    *("model=endpoint", "model.id=m", "cluster.launch.nodes=2", "cluster.launch.gpus_per_node=8"),
    "cluster.launch.serve='vllm serve m --port $PORT'",
)


def test_rendered_job_with_servers_has_their_gpus_and_asks_them() -> None:
    assert {"--nodes=2", "--gpus-per-node=8"} <= header(*SERVED)
    script = rendered(*SERVED)
    assert "\nserve='vllm serve m --port $PORT'\n" in script
    (sweep,) = (line for line in script.splitlines() if line.startswith("sweep()"))
    assert sweep.endswith(' "model.endpoint.urls=[$urls]"; }')
    served = ["cluster=slurm", *SERVED]
    run = load(served)
    answers = (build_plan(run).branches[0].answers for run in (run, load([*served, URLS])))
    assert len({artifact.fingerprint for artifact in answers}) == 1
    with pytest.raises(InputError, match=naming("factsweep launch", "model.endpoint.urls")):
        check_servers(run)


# The server has a key; the second one finds its port taken, and dies.
SERVER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        has_key = self.headers["Authorization"] == f"Bearer {os.environ['VLLM_API_KEY']}"
        self.send_response(200 if has_key and self.path == "/v1/models" else 401)
        self.end_headers()
http.server.HTTPServer.allow_reuse_address = False
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_job_waits_for_its_servers_and_does_without_one_that_has_died(
    tools: Path, tmp_path: Path
) -> None:
    part = launchers.BODY.split("# The servers of the model")[1].split("sweep &")[0]
    (tmp_path / "server.py").write_text(SERVER)
    for serve, code in ((f"exec {sys.executable} {tmp_path}/server.py $PORT", 0), ("exit 3", 1)):
        script = (
            f"set -euo pipefail; nodes=(127.0.0.1 here.invalid) serve={serve!r} start_s=60\n"
            f"logs={tmp_path} SLURM_CPUS_PER_TASK=1; trap 'kill $(jobs -pr) || true' EXIT\n"
            f"#{part}\necho $PORT $urls"
        )
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        process = subprocess.run(
            ["bash", "-c", script], env=environment, capture_output=True, text=True, check=False
        )
        assert process.returncode == code, process.stderr
        if code:
            assert "no server answers" in process.stderr
        else:
            port, urls = process.stdout.split()
            assert urls == f"http://127.0.0.1:{port}/v1,http://here.invalid:{port}/v1"
    assert len([line for line in lines_of(tools) if "--overlap" in line]) == 4
    assert (tmp_path / "0" / "server-here.invalid.log").exists()


@pytest.mark.parametrize("name", ["two words", "a'b", "$(touch x)"])
def test_rendered_script_is_sound_shell(tmp_path: Path, name: str) -> None:
    script = tmp_path / "job.sh"
    overrides = (f"run_name={name!r}", "benchmark.relations=[P17, P36]", *SERVED)
    script.write_text(rendered(*overrides))
    subprocess.run(["bash", "-n", script], check=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shellcheck = shutil.which("shellcheck", path=path)
    if shellcheck is None:
        pytest.skip("shellcheck is missing; requirements/dev.txt brings it")
    check = [shellcheck, "--severity=warning", script]
    process = subprocess.run(check, capture_output=True, text=True, check=False)
    assert process.stdout == ""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of the stand-ins, which are first on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, body in STAND_INS.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "slurm.log"))
    return tmp_path / "slurm.log"


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_job_that_is_preempted_queues_again_and_goes_on(
    small: list[str],
    compute_here: Callable[..., Plan],
    tools: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On a fake engine, since this is about scheduling; the two nodes are two of Ray, both here."""
    answered, places = tmp_path / "answered.log", tmp_path / "places.log"
    wish = {"log": str(answered), "places": str(places), "seconds_per_answer": 0.1}
    monkeypatch.setenv(WISH, json.dumps(wish))
    nodes = ["cluster.device=cpu", "model.replicas.min=2", "model.replicas.max=2"]
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    overrides = [*small, "cluster=slurm", "cluster.launch.cpus_per_node=1", *nodes, *folders]
    assert main(["launch", *overrides]) == 0
    assert capsys.readouterr().out == "Submitted batch job 7\n"

    with job(tools) as first:
        wait_for(lambda: len(lines_of(answered)) > 20 or first.poll() is not None)
        first.send_signal(signal.SIGUSR1)
        assert first.wait(LIMIT_S) != 0
    assert lines_of(tools)[-1].startswith("requeue ")
    assert 20 < len(lines_of(answered)) < 140

    assert Path(f"{tools}.slow").exists()  # and yet both nodes answered, below
    with job(tools) as second:
        assert second.wait(LIMIT_S) == 0
    assert [line.split()[0] for line in lines_of(tools)].count("requeue") == 1
    assert len({json.loads(line)["node"] for line in lines_of(places)[-2:]}) == 2

    prompts: list[str] = []
    uninterrupted = compute_here(
        load([*small, f"artifacts={tmp_path}/alone"]), FakeEngine(0, prompts.append)
    )
    assert (
        len(prompts) <= len(lines_of(answered)) <= len(prompts) + 2
    )  # the prompts of both engines at most
    branch = branches(f"{tmp_path}/results")[0]
    assert branch.metrics.read_all("metrics").equals(
        uninterrupted.branches[0].metrics.read_all("metrics")
    )


@contextmanager
def job(tools: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The script that sbatch was given, as Slurm starts it on the first of two nodes."""
    variables = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "one,two"}
    environment = {**os.environ, **variables, "SLURM_CPUS_PER_TASK": "1"}
    command = ["bash", f"{tools}.job"]
    # What a job starts ends with it: Slurm has a cgroup for that, and this a session.
    with subprocess.Popen(
        command, env=environment, cwd=tools.parent, start_new_session=True
    ) as process:
        try:
            yield process
            ports = re.findall(r"--port=(\d+)", tools.read_text())
            wait_for(lambda: not is_open(int(ports[-1])))  # Ray went with the job
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)
