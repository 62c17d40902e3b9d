"""This machine: its limits, memory and disks, and its GPUs, for which the driver is asked."""

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
from factsweep.pipeline.config import described
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine import processor

_GB = 1e9
SHM = Path("/dev/shm")
# Ray's documentation asks for 65,536 where many workers run; a node of ours needs far fewer.
_FILES, _FEW_FILES = 65_536, 4_096
_SHM_GB, _TEMPORARY_GB = 2.0, 10.0
CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_OF_RAY = Path("/", "tmp")  # where its own folder is, unless it is told another
_LEAST_MEMORY_GB, _FEW_MEMORY_GB = 4.0, 8.0
_FIELDS = ("index", "name", "driver_version", "compute_cap", "memory.total", "memory.used")
# The oldest driver for each major version of CUDA, from NVIDIA's table of compatibility.
_DRIVERS = {11: 450, 12: 525, 13: 580}
_LEAST_CAPABILITY = 7.0  # of vLLM
_TAKEN = 0.05  # of a GPU's memory, which an empty one does not use

State = Literal["holds", "warns", "fails"]


@dataclass(frozen=True)
class Finding:
    """One check: of what, what was looked at, what was found, and the fix where it fails."""

    group: str
    check: str
    state: State
    found: str
    fix: str = ""

    @classmethod
    def of(cls, check: str, found: str, *, fails: str = "", warns: str = "") -> "Finding":
        """One that holds unless there is a fix, for what fails or what one should know of.

        Its group is that of all that is looked at there.
        """
        state: State = "fails" if fails else "warns" if warns else "holds"
        return cls("", check, state, found, fails or warns)

    def __str__(self) -> str:
        fix = f"; {self.fix}" if self.fix else ""
        return f"  {self.state:<6} {self.check}: {self.found}{fix}"


def checks(run: Run) -> Iterator[Finding]:
    """What the operating system allows, and what there is room for."""
    width = "computes in bfloat16"
    if not processor.cpu_computes_in("bfloat16"):
        width = "without bfloat16: computes in float32"
    yield Finding.of("CPU", f"{processor.cpu()}, {width}")
    yield _files()
    yield _memory()
    yield _shared_memory(run)
    yield _temporary(run)


def _files() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # to which Ray raises the soft limit
    told = "no limit" if hard < 0 else f"{hard:,} at once"
    more = f"have the hard limit raised (ulimit -Hn) to {_FILES:,}"
    fails = f"Ray opens more than that; {more}" if 0 <= hard < _FEW_FILES else ""
    few = f"enough for one machine, few for a large cluster; {more}"
    warns = few if 0 <= hard < _FILES else ""
    return Finding.of("open files", told, fails=fails, warns=warns)


def _memory() -> Finding:
    """What this machine has, or what its container may take of it."""
    whole = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    held = min([whole, *_limits()])
    told = f"{held / _GB:,.0f} GB" + (f" of {whole / _GB:,.0f} GB" if held < whole else "")
    fix = "an engine, Ray and the driver need more; give the job or the container more memory"
    none, few = held < _LEAST_MEMORY_GB * _GB, held < _FEW_MEMORY_GB * _GB
    return Finding.of("memory", told, fails=fix if none else "", warns=fix if few else "")


def _limits() -> Iterator[float]:
    """The limits of the groups that this process is in: of a container, of a job, of its step."""
    own = OWN_CGROUP.read_text() if OWN_CGROUP.is_file() else ""
    found = re.search(r"^0::/(.*)$", own, re.M)
    innermost = CGROUPS / found[1] if found else CGROUPS
    for folder in (innermost, *innermost.parents):
        if folder.is_relative_to(CGROUPS) and (folder / "memory.max").is_file():
            text = (folder / "memory.max").read_text().strip()
            if text.isdigit():
                yield float(text)


def _shared_memory(run: Run) -> Finding:
    """Where NCCL and Ray exchange data; an engine on several GPUs does not start without."""
    free = shutil.disk_usage(SHM).free / _GB if SHM.is_dir() else 0.0
    told = f"{free:,.1f} GB free in {SHM}"
    more = f"give the container {_SHM_GB:.0f} GB or more: --shm-size=8g"
    fix = "" if free >= _SHM_GB else f"{more}, or cluster.launch.shared_memory"
    several = processor.device(run.cluster.device) == "cuda" and run.model.tensor_parallel > 1
    return Finding.of("shared memory", told, **{"fails" if several else "warns": fix})


def _temporary(run: Run) -> Finding:
    """Where Ray logs and spills: a Ray of ours where it is told to, one that runs below /tmp."""
    own = run.cluster.address is None
    folder = (os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) if own else _OF_RAY
    free = shutil.disk_usage(folder).free / _GB
    few = free < _TEMPORARY_GB
    fix = f"Ray logs and spills there; free some{', or set RAY_TMPDIR' if own else ''}"
    found = f"{free:,.0f} GB free in {folder}"
    return Finding.of("temporary files", found, warns=fix if few else "")


class Gpu(NamedTuple):
    """A GPU as nvidia-smi tells it; memory in MiB."""

    number: int
    name: str
    driver: str
    capability: float
    mib: int
    used_mib: int


def of_gpus(run: Run) -> Iterator[Finding]:
    """What there is, and whether the model fits; without GPUs, whether any is wanted."""
    found, why_none = seen()
    yield from of_driver(run, found, why_none)
    if found:
        yield _taken(found)
        yield room(run, found)


def of_driver(run: Run, found: Sequence[Gpu], why: str) -> Iterator[Finding]:
    """Only what the driver says of itself and of the kind of GPU; `why` there are none."""
    wanted = processor.device(run.cluster.device) == "cuda" and run.engine.gpus != "none"
    if not found:
        fix = "look at nvidia-smi, or compute on CPUs: cluster.device=cpu"
        yield Finding.of("GPUs", why, fails=fix if wanted else "")
        return
    names = sorted({each.name for each in found})
    mixed = "engines of one sweep would differ in speed, and in the last digits; ask for one kind"
    told = f"{len(found)} × {' and '.join(names)}"
    yield Finding.of("GPUs", told, warns=mixed if len(names) > 1 else "")
    yield _driver(found[0].driver, cuda())
    yield _capability(min(each.capability for each in found), run.model.dtype)


def seen() -> tuple[list[Gpu], str]:
    """The GPUs that the driver shows; where there are none, why."""
    ask = ["nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=30)
    except FileNotFoundError:
        return [], "there is no nvidia-smi, so no driver of NVIDIA's"
    except subprocess.TimeoutExpired:
        return [], "nvidia-smi does not answer within 30 s"
    if done.returncode:
        said = (done.stdout or done.stderr).strip().splitlines()
        return [], f"nvidia-smi fails: {said[0] if said else done.returncode}"
    try:
        return [each for each in map(_gpu, done.stdout.splitlines()) if _is_ours(each)], ""
    except ValueError:  # a driver that is too old for a field, or a GPU that has fallen off
        return [], f"nvidia-smi prints {done.stdout.strip()!r}"


def _is_ours(gpu: Gpu) -> bool:
    """Whether this process may use it; nvidia-smi shows those of other jobs, too."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    ours = given.split(",") if re.fullmatch(r"\d+(,\d+)*", given) else []  # else by their UUIDs
    return not ours or str(gpu.number) in ours


def _gpu(line: str) -> Gpu:
    number, name, driver, capability, mib, used = (x.strip() for x in line.split(","))
    return Gpu(int(number), name, driver, float(capability), int(mib), int(used))


def cuda() -> str | None:
    """The version of CUDA that torch was built with; null: for CPUs alone, or there is none."""
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    # Read from its source: every run looks, and importing it takes seconds.
    source = Path(spec.submodule_search_locations[0], "version.py").read_text("utf-8")
    found = re.search(r"^cuda\b.*= '([\d.]+)'", source, re.M)
    return found[1] if found else None


def _driver(driver: str, built: str | None) -> Finding:
    if built is None:
        fix = "install the CUDA build (make setup DEVICE=cuda), if the GPUs are to be used"
        return Finding.of("driver", f"{driver}; torch is built for CPUs", warns=fix)
    least = _DRIVERS.get(int(built.partition(".")[0]), 0)
    old = int(driver.partition(".")[0]) < least
    fix = f"CUDA {built} needs driver {least} or later; ask for newer nodes, or an update"
    return Finding.of("driver", f"{driver}, CUDA {built}", fails=fix if old else "")


def _capability(least: float, dtype: str) -> Finding:
    fails = warns = ""
    if least < processor.BFLOAT16_GPU:
        warns = "no bfloat16 there: float16 or float32 is used, by the type of the weights"
        fails = "it has no bfloat16; give model.dtype=float16" if dtype == "bfloat16" else ""
    if least < _LEAST_CAPABILITY:
        fails = f"vLLM needs {_LEAST_CAPABILITY}"
    return Finding.of("compute capability", f"{least}", fails=fails, warns=warns)


def _taken(found: Sequence[Gpu]) -> Finding:
    busy = [each for each in found if each.used_mib > _TAKEN * each.mib]
    told = ", ".join(f"GPU {each.number} has {each.used_mib:,} MiB in use" for each in busy)
    fix = "somebody else computes there; an engine needs model.gpu_memory_utilization of it free"
    return Finding.of("free", told or "nobody else is on them", fails=fix if busy else "")


def room(run: Run, found: Sequence[Gpu]) -> Finding:
    """Whether the weights fit the memory of the GPUs of one engine, with a fifth for the rest."""
    model = run.model
    gpus = model.tensor_parallel * model.pipeline_parallel
    need = described.weights_gb(model)
    there = gpus * min(each.mib for each in found) * 2**20 / 1e9 * model.gpu_memory_utilization
    weights = f"{need:,.0f}" if need >= 1 else f"{need:.1f}"
    told = f"{model.name} has {weights} GB of weights; {gpus} GPUs give {there:,.0f} GB"
    fails = ""
    if need > 0.8 * there:
        fails = "give model.tensor_parallel or larger GPUs, so that a fifth is left for the cache"
    if gpus > len(found) and model.pipeline_parallel == 1:
        fails = f"the node has {len(found)} GPUs, and one engine asks {gpus}"
    return Finding.of("memory for the model", told, fails=fails)


def refuse_unfit_machine(run: Run) -> None:
    """Refuse what no sweep can work with here; this costs nothing, so that every run looks.

    Raises:
        InputError: a limit of this machine, or the driver of its GPUs, is unfit.
    """
    looks = [("machine", checks(run))]
    if run.cluster.address is None and processor.device(run.cluster.device) == "cuda":
        looks.append(("GPUs", of_driver(run, *seen())))
    for group, findings in looks:
        for finding in findings:
            if finding.state == "fails":
                raise InputError(f"{group}, {finding.check}: {finding.found}; {finding.fix}.")
