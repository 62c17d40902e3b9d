"""Checks of this machine: limits, memory and disks, and its GPUs, by NVIDIA's driver."""

import os
import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from factsweep.operators.errors import InputError
from factsweep.pipeline.config import model_metadata
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine import processor

_GB = 1e9
SHM = Path("/dev/shm")
# Ray's documentation asks for 65,536 where many workers run; a node of ours needs far fewer.
_FILES, _FEW_FILES = 65_536, 4_096
_SHM_GB, _TEMPORARY_GB = 2.0, 10.0
CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_OF_RAY = Path("/", "tmp")  # the default folder of a Ray that runs already
_LEAST_MEMORY_GB, _FEW_MEMORY_GB = 4.0, 8.0
_FIELDS = ("index", "name", "driver_version", "compute_cap", "memory.total", "memory.used")
# The oldest driver for each major version of CUDA, from NVIDIA's table of compatibility.
_DRIVERS = {11: 450, 12: 525, 13: 580}
_LEAST_CAPABILITY = 7.0  # of vLLM
_IN_USE = 0.05  # of a GPU's memory; an idle one uses less

State = Literal["holds", "warns", "fails"]


@dataclass(frozen=True)
class Finding:
    """The result of one check: its group, its name, the finding, and the fix if it fails."""

    group: str
    check: str
    state: State
    found: str
    fix: str = ""

    @classmethod
    def of(cls, check: str, found: str, *, fails: str = "", warns: str = "") -> "Finding":
        """A finding that holds, unless there is a fix; its group is set by the examination."""
        state: State = "fails" if fails else "warns" if warns else "holds"
        return cls("", check, state, found, fails or warns)

    def __str__(self) -> str:
        fix = f"; {self.fix}" if self.fix else ""
        return f"  {self.state:<6} {self.check}: {self.found}{fix}"


def check_machine(run: Run) -> Iterator[Finding]:
    """The limits of the operating system, and the room in memory and on disk."""
    computes = processor.cpu_computes_in("bfloat16")
    width = "computes in bfloat16" if computes else "without bfloat16: computes in float32"
    yield Finding.of("CPU", f"{processor.cpu()}, {width}")
    yield _check_open_files()
    yield _check_memory_limit()
    # NCCL and Ray exchange data in shared memory; an engine on several GPUs needs it to start.
    free = shutil.disk_usage(SHM).free / _GB if SHM.is_dir() else 0.0
    hint = f"give the container {_SHM_GB:.0f} GB or more: --shm-size=8g"
    fix = "" if free >= _SHM_GB else f"{hint}, or cluster.launch.shared_memory"
    several = run.device == "cuda" and run.model.tensor_parallel > 1
    text = f"{free:,.1f} GB free in {SHM}"
    yield Finding.of("shared memory", text, **{"fails" if several else "warns": fix})
    # Ray logs and spills to temporary files.
    is_own_ray = run.cluster.address is None
    folder = (os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) if is_own_ray else _OF_RAY
    free = shutil.disk_usage(folder).free / _GB
    fix = f"Ray logs and spills there; free some{', or set RAY_TMPDIR' if is_own_ray else ''}"
    text = f"{free:,.0f} GB free in {folder}"
    yield Finding.of("temporary files", text, warns=fix if free < _TEMPORARY_GB else "")


def _check_open_files() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # to which Ray raises the soft limit
    text = "no limit" if hard < 0 else f"{hard:,} at once"
    hint = f"have the hard limit raised (ulimit -Hn) to {_FILES:,}"
    fails = f"Ray opens more than that; {hint}" if 0 <= hard < _FEW_FILES else ""
    few_hint = f"enough for one machine, few for a large cluster; {hint}"
    return Finding.of("open files", text, fails=fails, warns=few_hint if 0 <= hard < _FILES else "")


def _check_memory_limit() -> Finding:
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    usable = min([total, *_read_cgroup_limits()])
    text = f"{usable / _GB:,.0f} GB" + (f" of {total / _GB:,.0f} GB" if usable < total else "")
    fix = "an engine, Ray and the driver need more; give the job or the container more memory"
    fails = fix if usable < _LEAST_MEMORY_GB * _GB else ""
    warns = fix if usable < _FEW_MEMORY_GB * _GB else ""
    return Finding.of("memory", text, fails=fails, warns=warns)


def _read_cgroup_limits() -> Iterator[float]:
    text = OWN_CGROUP.read_text() if OWN_CGROUP.is_file() else ""
    path = re.search(r"^0::/(.*)$", text, re.M)
    innermost = CGROUPS / path[1] if path else CGROUPS
    for folder in (innermost, *innermost.parents):
        if folder.is_relative_to(CGROUPS) and (folder / "memory.max").is_file():
            limit = (folder / "memory.max").read_text().strip()
            if limit.isdigit():
                yield float(limit)


class Gpu(NamedTuple):
    """A GPU as nvidia-smi shows it; memory in MiB."""

    number: int
    name: str
    driver: str
    capability: float
    mib: int
    used_mib: int


def check_gpus(run: Run) -> Iterator[Finding]:
    """Checks of the GPUs: driver, other users, and whether the model fits."""
    gpus, problem = query_gpus()
    yield from check_driver(run, gpus, problem)
    if gpus:
        busy = [gpu for gpu in gpus if gpu.used_mib > _IN_USE * gpu.mib]
        text = ", ".join(f"GPU {gpu.number} has {gpu.used_mib:,} MiB in use" for gpu in busy)
        fix = "another process computes there; an engine needs model.gpu_memory_utilization of it"
        yield Finding.of("free", text or "no other process uses them", fails=fix if busy else "")
        yield check_memory(run, gpus)


def check_driver(run: Run, gpus: Sequence[Gpu], problem: str) -> Iterator[Finding]:
    """Checks of the driver and the kind of GPU; `problem`: why there are none."""
    needed = run.device == "cuda" and run.engine.gpus != "none"
    if not gpus:
        fix = "look at nvidia-smi, or compute on CPUs: cluster.device=cpu"
        yield Finding.of("GPUs", problem, fails=fix if needed else "")
        return
    names = sorted({gpu.name for gpu in gpus})
    mixed = "engines of one sweep would differ in speed, and in the last digits; ask for one kind"
    text = f"{len(gpus)} × {' and '.join(names)}"
    yield Finding.of("GPUs", text, warns=mixed if len(names) > 1 else "")
    driver, built = gpus[0].driver, cuda()
    if built is None:
        fix = "install the CUDA build (make setup DEVICE=cuda), if the GPUs are to be used"
        yield Finding.of("driver", f"{driver}; torch is built for CPUs", warns=fix)
    else:
        oldest = _DRIVERS.get(int(built.partition(".")[0]), 0)
        is_old = int(driver.partition(".")[0]) < oldest
        fix = f"CUDA {built} needs driver {oldest} or later; ask for newer nodes, or an update"
        yield Finding.of("driver", f"{driver}, CUDA {built}", fails=fix if is_old else "")
    capability, fails, warns = min(gpu.capability for gpu in gpus), "", ""
    if capability < processor.BFLOAT16_GPU:
        warns = "no bfloat16 there: float16 or float32 is used, by the type of the weights"
        if run.model.dtype == "bfloat16":
            fails = "it has no bfloat16; give model.dtype=float16"
    if capability < _LEAST_CAPABILITY:
        fails = f"vLLM needs {_LEAST_CAPABILITY}"
    yield Finding.of("compute capability", f"{capability}", fails=fails, warns=warns)


def query_gpus() -> tuple[list[Gpu], str]:
    """The GPUs that the driver shows and this process may use; if there are none, the reason."""
    query = ["nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        process = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)
    except FileNotFoundError:
        return [], "there is no nvidia-smi, so no driver of NVIDIA's"
    except subprocess.TimeoutExpired:
        return [], "nvidia-smi does not answer within 30 s"
    if process.returncode:
        lines = (process.stdout or process.stderr).strip().splitlines()
        return [], f"nvidia-smi fails: {lines[0] if lines else process.returncode}"
    # nvidia-smi shows the GPUs of other jobs, too.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    numbers = visible.split(",") if re.fullmatch(r"\d+(,\d+)*", visible) else []  # or UUIDs
    try:
        rows = (map(str.strip, line.split(",")) for line in process.stdout.splitlines())
        gpus = [
            Gpu(int(number), name, driver, float(capability), int(mib), int(used))
            for number, name, driver, capability, mib, used in rows
        ]
    except ValueError:  # a driver that is too old for a field, or a GPU that has fallen off
        return [], f"nvidia-smi prints {process.stdout.strip()!r}"
    return [gpu for gpu in gpus if not numbers or str(gpu.number) in numbers], ""


def cuda() -> str | None:
    """The version of CUDA that torch was built with; None for a CPU build, or without torch."""
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    # Read from its source: every run checks it, and importing torch takes seconds.
    source = Path(spec.submodule_search_locations[0], "version.py").read_text("utf-8")
    version = re.search(r"^cuda\b.*= '([\d.]+)'", source, re.M)
    return version[1] if version else None


def check_memory(run: Run, gpus: Sequence[Gpu]) -> Finding:
    """Whether the weights fit the memory of the GPUs of one engine, with a fifth to spare."""
    model = run.model
    n_gpus = model.tensor_parallel * model.pipeline_parallel
    need = model_metadata.weights_gb(model)
    memory = n_gpus * min(gpu.mib for gpu in gpus) * 2**20 / 1e9 * model.gpu_memory_utilization
    weights = f"{need:,.0f}" if need >= 1 else f"{need:.1f}"
    text = f"{model.name} has {weights} GB of weights; {n_gpus} GPUs give {memory:,.0f} GB"
    fails = ""
    if need > 0.8 * memory:
        fails = "give model.tensor_parallel or larger GPUs, so that a fifth is left for the cache"
    if n_gpus > len(gpus) and model.pipeline_parallel == 1:
        fails = f"the node has {len(gpus)} GPUs, and one engine asks {n_gpus}"
    return Finding.of("memory for the model", text, fails=fails)


def refuse_unfit_machine(run: Run) -> None:
    """Refuse a machine on which no sweep can run; cheap enough for every run."""
    groups = [("machine", check_machine(run))]
    is_pretended = run.model.source == "absent"  # in a rehearsal
    if run.cluster.address is None and run.device == "cuda" and not is_pretended:
        groups.append(("GPUs", check_driver(run, *query_gpus())))
    for group, findings in groups:
        for finding in findings:
            if finding.state == "fails":
                raise InputError(f"{group}, {finding.check}: {finding.found}; {finding.fix}.")
