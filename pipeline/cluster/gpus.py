"""The GPUs of this machine: driver, kind, memory, and who else is on them; the driver is asked."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from factsweep.operators.errors import InputError
from factsweep.pipeline.cluster import machine
from factsweep.pipeline.cluster.machine import Finding
from factsweep.pipeline.config import described
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine import dtype as dtypes
from factsweep.pipeline.machine import processor

_FIELDS = (
    *("index", "name", "driver_version", "compute_cap", "memory.total", "memory.used"),
    *("ecc.errors.uncorrected.volatile.total", "mig.mode.current"),
)
# The oldest driver for each major version of CUDA, from NVIDIA's table of compatibility.
_DRIVERS = {11: 450, 12: 525, 13: 580}
_LEAST_CAPABILITY = 7.0  # of vLLM
_TAKEN = 0.05  # of a GPU's memory, which an empty one does not use


class Gpu(NamedTuple):
    """A GPU as nvidia-smi tells it; memory in MiB."""

    number: int
    name: str
    driver: str
    capability: float
    mib: int
    used_mib: int
    errors: int = 0  # of its memory, that were not corrected
    is_split: bool = False  # into parts (MIG)


def checks(run: Run) -> Iterator[Finding]:
    """What there is, and whether the model fits; without GPUs, whether any is wanted."""
    found, why_none = seen()
    yield from of_driver(run, found, why_none)
    if found:
        yield _taken(found)
        yield _health(found)
        if run.model.tensor_parallel > 1 < len(found):
            yield _links(run.model.tensor_parallel)
        yield room(run, found)
        why = "not on the path: kernels that vLLM would compile are left out"
        yield Finding.of("nvcc", shutil.which("nvcc") or why)


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
    number, name, driver, capability, mib, used, *more = (x.strip() for x in line.split(","))
    errors, mig = (*more, "", "")[:2]  # which not every GPU has: [N/A]
    return Gpu(
        *(int(number), name, driver, float(capability), int(mib), int(used)),
        int(errors) if errors.isdigit() else 0,
        mig == "Enabled",
    )


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
    if least < dtypes.BFLOAT16_GPU:
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


def _health(found: Sequence[Gpu]) -> Finding:
    """Errors of memory that the driver has counted since it was loaded, and GPUs in parts."""
    broken = [f"GPU {each.number} has {each.errors:,}" for each in found if each.errors]
    split = any(each.is_split for each in found)
    told = f"uncorrected errors of memory: {', '.join(broken) or 'none'}"
    fix = "answers from it may be wrong; have it reset or replaced, and leave its node out"
    parts = "a GPU is in parts (MIG), of which vLLM uses one; ask for whole GPUs"
    return Finding.of("health", told, fails=fix if broken else "", warns=parts if split else "")


def _links(n: int) -> Finding:
    """How the GPUs of an engine are connected, by the driver's matrix; the slowest link counts."""
    ask = ["nvidia-smi", "topo", "-m"]
    done = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=30)
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("GPU")]
    links = {cell for row in rows[:n] for cell in row[1 : n + 1]} - {"X"}
    slow = sorted(each for each in links if not each.startswith("NV"))
    told = ", ".join(sorted(links)) or "nvidia-smi topo -m does not tell"
    fix = "tensor parallelism exchanges over PCIe or further, and is slow; ask for NVLink"
    return Finding.of("links", f"{told} between {n} GPUs", warns=fix if slow else "")


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
    looks = [("machine", machine.checks(run))]
    if run.cluster.address is None and processor.device(run.cluster.device) == "cuda":
        looks.append(("GPUs", of_driver(run, *seen())))
    for group, findings in looks:
        for finding in findings:
            if finding.state == "fails":
                raise InputError(f"{group}, {finding.check}: {finding.found}; {finding.fix}.")
