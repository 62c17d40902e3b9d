"""Whether the processes of an engine add up their tensors: rightly, in time, and how fast."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from factsweep.operators.errors import DecodingError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.doctor.finding import Finding
from factsweep.pipeline.machine import processor

_LARGE, _SMALL = 16 << 20, 4 << 10  # float32: 64 MiB, and 16 KiB as of the layer of one token
_TURNS = 10
_SLOW_GB_S = 5.0  # PCIe 3.0 with 16 lanes gives 10 or more
_LIMIT_S = 120.0  # NCCL's start takes some ten seconds; where it hangs, it hangs for ever
_COMMAND = (sys.executable, "-m", "factsweep.pipeline.doctor.allreduce")


class Measured(NamedTuple):
    """What an all-reduce gave: whether all sums were right, and how fast they came.

    `gb_s` is the bus bandwidth of NVIDIA's nccl-tests (doc/PERFORMANCE.md): bytes / time ×
    2(n - 1) / n, which does not depend on the number n of processes. `small_us` is the time of
    16 KiB, in microseconds.
    """

    right: bool
    gb_s: float
    small_us: float


def checks(run: Run) -> list[Finding]:
    """An all-reduce over the tensor-parallel group, on the GPUs that this process was given."""
    n, device = run.model.tensor_parallel, processor.device(run.cluster.device)
    # Of a pipeline-parallel engine this process holds no GPU: vLLM's own workers do.
    several = n > 1 and run.model.pipeline_parallel == 1 and run.engine.gpus == "parallel"
    return [found(n, device)] if several else []


def found(n: int, device: str) -> Finding:
    """The finding for that many processes on `cpu` or `cuda`."""
    fix = (
        "look at NCCL_DEBUG=INFO; where NCCL_P2P_DISABLE=1 helps, switch off ACS and the IOMMU"
        if device == "cuda"
        else "vLLM's processes will not find each other either; see that the host's name resolves"
    )
    try:
        measured = of_group(n, device)
    except DecodingError as error:
        return Finding.of("all-reduce", str(error), fails=fix)
    told = (
        f"over {n} processes on {device}: {measured.gb_s:,.1f} GB/s, "
        f"16 KiB in {measured.small_us:,.0f} µs"
    )
    if not measured.right:
        return Finding.of("all-reduce", f"{told}, and the sums are wrong", fails=fix)
    slow = device == "cuda" and measured.gb_s < _SLOW_GB_S
    why = "GPUs reach each other through the host; take GPUs with NVLink, or fewer per engine"
    return Finding.of("all-reduce", told, warns=why if slow else "")


def of_group(n: int, device: str) -> Measured:
    """Start the processes, and wait for what the first of them measures.

    Raises:
        DecodingError: one of them fails, or they do not end in time.
    """
    with tempfile.TemporaryDirectory() as name, ExitStack() as left_behind:  # none is
        folder, processes = Path(name), list[subprocess.Popen[bytes]]()
        for rank in range(n):
            given = [*_COMMAND, str(rank), str(n), device, str(folder / "met")]
            to, err = (folder / f"{kind}-{rank}" for kind in ("out", "err"))
            with to.open("wb") as out, err.open("wb") as errors:
                processes.append(subprocess.Popen(given, stdout=out, stderr=errors))
            left_behind.callback(processes[-1].wait)
            left_behind.callback(processes[-1].kill)
        _awaited(processes, folder)
        lines = (folder / "out-0").read_text().splitlines()
        return Measured(**json.loads(lines[-1]))  # before it is what NCCL_DEBUG prints


def _awaited(processes: Sequence["subprocess.Popen[bytes]"], folder: Path) -> None:
    """All have ended well; the first that fails is named, since the others would wait for it."""
    end = time.monotonic() + _LIMIT_S
    while None in (codes := [process.poll() for process in processes]) or any(codes):
        for rank, code in enumerate(codes):
            if code:
                lines = (folder / f"err-{rank}").read_text(errors="replace").split("\n")
                said = next((line.strip() for line in reversed(lines) if line.strip()), "")
                raise DecodingError(f"process {rank} ends with {code}: {said or 'without a word'}")
        if time.monotonic() > end:
            raise DecodingError(f"{len(processes)} processes did not end in {_LIMIT_S:g} s")
        time.sleep(0.05)


def of_rank(rank: int, n: int, device: str, met: str) -> Measured:
    """What one of the processes does; all meet in a file."""
    import torch
    from torch import distributed

    on = torch.device(device, rank) if device == "cuda" else torch.device(device)
    if device == "cuda":
        torch.cuda.set_device(on)
    distributed.init_process_group(
        "nccl" if device == "cuda" else "gloo", init_method=f"file://{met}", rank=rank, world_size=n
    )

    def turn(size: int) -> tuple[bool, float]:
        """Whether the sum is right in every process, and the seconds that it took."""
        # Whole numbers that float32 holds, so that their sum is exact in any order.
        numbers = torch.arange(size, device=on) % 1024
        tensor = (numbers + rank).to(torch.float32)
        distributed.barrier()
        began = time.perf_counter()
        distributed.all_reduce(tensor)
        if device == "cuda":
            torch.cuda.synchronize()
        took = time.perf_counter() - began
        wrong = (tensor != n * numbers + n * (n - 1) // 2).any().to(torch.int32)
        distributed.all_reduce(wrong, op=distributed.ReduceOp.MAX)
        return not wrong.item(), took

    try:
        large, small = ([turn(size) for _ in range(_TURNS)] for size in (_LARGE, _SMALL))
    finally:
        distributed.destroy_process_group()
    seconds = min(took for _, took in large)
    return Measured(
        right=all(right for right, _ in (*large, *small)),
        gb_s=4 * _LARGE / seconds * 2 * (n - 1) / n / 1e9,
        small_us=1e6 * min(took for _, took in small),
    )


if __name__ == "__main__":
    _rank, _n, _device, _met = sys.argv[1:]
    _told = json.dumps(of_rank(int(_rank), int(_n), _device, _met)._asdict())
    sys.stdout.write(f"{_told}\n")
