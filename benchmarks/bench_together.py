"""Models that start together on one store, and on one store per model.

Each model is a driver with a Ray and a fake engine of its own, which takes its time for an answer,
so that a run lasts as long as its engine and not as long as this machine:

    apart     each has a store of its own, and makes facts and prompts itself
    together  all have one: one of them makes facts and prompts, the others wait for these alone

Both ways all run at once, so they share the cores equally. A run on the one store is to
end when it ends on its own store, within a tolerance.

    python benchmarks/bench_together.py [--models 5] [--seconds 0.1]
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from tests.faults.sweep import SMALL, Sweep

LATER_S = 10.0  # tolerance: shared work, and differences between drivers


def main() -> None:
    """Run all models both ways, print when each ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="that an answer takes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-together-") as folder:
        apart = ended(Path(folder) / "apart", args.models, args.seconds, shared=False)
        shared_ends = ended(Path(folder) / "together", args.models, args.seconds, shared=True)
    print("model  on its own store  on one store")
    for number, (alone_s, shared_s) in enumerate(zip(apart, shared_ends, strict=True), 1):
        print(f"{number:5}  {alone_s:14.1f} s  {shared_s:10.1f} s")
    later = max(shared_ends) - max(apart)
    verdict = "holds" if later < LATER_S else "MISSED"
    print(
        f"the last: {later:+.1f} s, {max(shared_ends) / max(apart):.2f} × (below +10 s: {verdict})"
    )


def ended(folder: Path, n_models: int, seconds: float, *, shared: bool) -> list[float]:
    """The seconds until each of some models has ended; all begin now."""
    store = str(folder / "artifacts") if shared else None
    began = time.monotonic()
    sweeps = [
        Sweep(
            folder / f"model-{number}",
            (*SMALL, "cluster.when_held=wait", f"model.id=model-{number}"),
            store,
            seconds_per_answer=seconds,
        ).start()
        for number in range(n_models)
    ]
    end_times: dict[int, float] = {}
    while len(end_times) < n_models:
        for number, sweep in enumerate(sweeps):
            assert sweep.process is not None
            if number not in end_times and sweep.process.poll() is not None:
                end_times[number] = time.monotonic() - began
                assert sweep.process.returncode == 0, sweep.process.communicate()[1]
        time.sleep(0.1)
    return [end_times[number] for number in range(n_models)]


if __name__ == "__main__":
    main()
