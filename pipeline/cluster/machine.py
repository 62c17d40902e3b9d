"""This machine: its limits, its shared memory, its disks, and its clock."""

import os
import re
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from factsweep.pipeline.cluster.machine import Finding
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine import dtype, processor

_GB = 1e9
SHM = Path("/dev/shm")
# Ray's documentation asks for 65,536 where many workers run; a node of ours needs far fewer.
_FILES, _FEW_FILES = 65_536, 4_096
_PROCESSES = 4_096
_SHM_GB, _TEMPORARY_GB = 2.0, 10.0
CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_OF_RAY = Path("/", "tmp")  # where its own folder is, unless it is told another
_LEAST_MEMORY_GB, _FEW_MEMORY_GB = 4.0, 8.0


def checks(run: Run) -> Iterator[Finding]:
    """What the operating system allows, and what there is room for."""
    width = "computes in bfloat16"
    if not dtype.cpu_computes_in("bfloat16"):
        width = "without bfloat16: computes in float32"
    yield Finding.of("CPU", f"{processor.cpu()}, {width}")
    yield _files()
    yield _processes()
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


def _processes() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    few = 0 <= soft < _PROCESSES
    fix = f"Ray and torch start hundreds of threads; raise it with: ulimit -u {_PROCESSES}"
    told = "no limit" if soft < 0 else f"{soft:,} at once"
    return Finding.of("processes", told, fails=fix if few else "")


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
