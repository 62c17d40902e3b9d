"""The batch job on a real Slurm: a controller and two nodes, all on this machine.

Debian has it: apt-get install slurm-wlm munge. The engine is fake: this is about scheduling.
"""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from factsweep.operators.engines.fake import WISH, FakeEngine
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.results.past_runs import branches
from factsweep.pipeline.stages.plan import Plan
from tests.builders import lines_of

NEEDED = ("slurmctld", "slurmd", "munged", "sbatch")
LIMIT_S = 600
OTHER = 65534  # nobody: another user of the nodes
CONFIG = """
ClusterName=test
FirstJobId={first}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
SchedulerParameters=sched_interval=2,batch_sched_delay=1
KillWait=30
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 State=UNKNOWN
NodeName=two NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES State=UP PriorityTier=1 GraceTime=40
PartitionName=high Nodes=ALL State=UP PriorityTier=2
"""


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Slurm of two nodes; its folder, in which any user may read."""
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin")
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and Slurm ({', '.join(missing)}): apt-get install slurm-wlm munge")
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # paths of sockets are short
    folder.chmod(0o755)
    with_ports = [socket.socket() for _ in range(3)]
    for port_socket in with_ports:
        port_socket.bind(("127.0.0.1", 0))
    ports = [port_socket.getsockname()[1] for port_socket in with_ports]
    for port_socket in with_ports:
        port_socket.close()
    config, key = folder / "slurm.conf", folder / "key"
    text = CONFIG.format(host=socket.gethostname(), folder=folder, ports=ports, first=ports[0])
    config.write_text(text)
    key.write_bytes(os.urandom(64))
    key.chmod(0o400)
    (folder / "state").mkdir()
    monkeypatch.setenv("SLURM_CONF", str(config))
    munge = ("munged", "--foreground", "--force", f"--key-file={key}")
    options = ("socket", "pid-file", "log-file", "seed-file")
    names = ("munge.socket", "munge.pid", "munge.log", "munge.seed")
    commands = [
        [*munge, *(f"--{o}={folder}/{n}" for o, n in zip(options, names, strict=True))],
        ["slurmctld", "-D", "-c"],
        *(["slurmd", "-D", "-N", name] for name in ("one", "two")),
    ]
    log = (folder / "daemons.log").open("w")
    running = []
    try:
        for command in commands:
            running.append(subprocess.Popen(command, stdout=log, stderr=log))
            time.sleep(0.5)
        wait_for(lambda: asked("sinfo", "-h", "-t", "idle", "-o", "%D") == "2")
        yield folder
    finally:
        for partition in ("low", "high"):
            asked("scancel", f"--partition={partition}")
        wait_for(lambda: not asked("squeue", "-h"))  # slurmd waits for its steps, too
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(60)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.chaos  # eight minutes; the job below is a real one, too
@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_job_passes_a_time_limit_a_preemption_and_a_node_that_is_lost(
    slurm: Path,
    small: list[str],
    compute_here: Callable[..., Plan],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answered = tmp_path / "answered.log"
    monkeypatch.setenv(WISH, json.dumps({"log": str(answered), "seconds_per_answer": 2.0}))
    monkeypatch.chdir(tmp_path)
    sizes = ["cluster.device=cpu", "model.replicas.min=1", "model.replicas.max=2"]
    wait = ["cluster.launch.cpus_per_node=1", "cluster.launch.stop_s=60", "run_name=real"]
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    others_job = queued(slurm, "sleep 600", "--partition=low", user=OTHER)
    assert main(["launch", *small, "cluster=slurm", *sizes, *wait, *folders]) == 0
    job = capsys.readouterr().out.split()[-1]

    # The time limit: USR1 comes stop_s before it.
    wait_for(lambda: len(lines_of(answered)) > 10)
    limit_soon(job)
    wait_for(lambda: restarts(job) == "1")
    run("scontrol", "update", f"jobid={job}", "TimeLimit=60")

    # Who has a higher priority takes both nodes whole, and gives them back.
    n = len(lines_of(answered))
    wait_for(lambda: len(lines_of(answered)) > n + 10)
    urgent = queued(slurm, "sleep 5", "--partition=high", "--exclusive")
    wait_for(lambda: state(urgent) == "COMPLETED")
    wait_for(lambda: restarts(job) == "2")

    # One of the two nodes is lost: what it was at is done by the other.
    n = len(lines_of(answered))
    wait_for(lambda: len(lines_of(answered)) > n)
    run("scontrol", "update", "nodename=two", "state=down", "reason=test")
    wait_for(lambda: state(job) == "COMPLETED")
    assert state(others_job) in ("RUNNING", "PENDING")  # ours left theirs alone

    asked_alone: list[str] = []
    uninterrupted = compute_here(
        load([*small, f"artifacts={tmp_path}/alone"]), FakeEngine(0, asked_alone.append)
    )
    assert len(lines_of(answered)) <= len(asked_alone) + 3 * 2 + 16  # what was lost with the node
    branch = branches(f"{tmp_path}/results")[0]
    assert branch.metrics.read_all("metrics").equals(
        uninterrupted.branches[0].metrics.read_all("metrics")
    )
    logs = tmp_path / f"factsweep-real-{job}.logs"
    for start, node in (("0", "one"), ("0", "two"), ("1", "one"), ("2", "one")):
        assert list((logs / start / node).glob("raylet*"))
        assert list((logs / start / node).glob("worker-*.err"))
    left = list(Path("/tmp").glob(f"fs-{job}-*"))  # what Ray had there went with it,
    assert len(left) <= 1, left  # but for the node that was lost


def queued(folder: Path, command: str, *options: str, user: int | None = None) -> str:
    """The number of a job on both nodes, as its user gives it to Slurm."""
    sizes = ["--nodes=2", "--ntasks-per-node=1", "--output=job-%j.log", "--parsable"]
    line = ["sbatch", *sizes, *options, f"--wrap={command}"]
    if user is None:
        return run(*line)
    theirs = folder / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    line.insert(1, f"--chdir={theirs}")
    return run("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *line)


def limit_soon(job: str) -> None:
    """Let a job reach its time limit in 30 to 90 seconds; limits are whole minutes."""
    hours, minutes, seconds = map(int, shown(job, "RunTime").split(":"))
    so_far_s = (hours * 60 + minutes) * 60 + seconds
    run("scontrol", "update", f"jobid={job}", f"TimeLimit={-(-(so_far_s + 30) // 60)}")


def run(*command: str) -> str:
    process = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/tmp")
    return process.stdout.strip()


def asked(*command: str) -> str | None:
    """What a command says, or null where it fails, since a daemon is not ready."""
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    return process.stdout.strip() if process.returncode == 0 else None


def shown(job: str, field: str) -> str:
    words = (asked("scontrol", "show", "-o", "job", job) or "").split()
    return next(
        (
            field_text.partition("=")[2]
            for field_text in words
            if field_text.startswith(f"{field}=")
        ),
        "",
    )


def state(job: str) -> str:
    return shown(job, "JobState")


def restarts(job: str) -> str:
    """How often the job was started again, once it runs."""
    return shown(job, "Restarts") if state(job) == "RUNNING" else ""


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.3)
