"""Models that start together on one store, beside the same on a store each.

Each model is a driver with a Ray and a fake engine of its own, which takes its time for an answer,
so that a run lasts as long as its engine and not as long as this machine:

    apart     each has a store of its own, and makes facts and prompts itself
    together  all have one: one of them makes facts and prompts, the others wait for these alone

Both ways all are there at once, so that they share the cores alike. A run on the one store is to
end when it ends on its own, give or take what they share.

    python benchmarks/bench_together.py [--models 5] [--seconds 0.1]
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from tests.faults.sweep import SMALL, Sweep

LATER_S = 10.0  # than on its own store, at most: what is shared, and what drivers differ by


def main() -> None:
    """Run all models both ways, print when each ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="that an answer takes")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-together-") as folder:
        apart = ended(Path(folder) / "apart", given.models, given.seconds, shared=False)
        together = ended(Path(folder) / "together", given.models, given.seconds, shared=True)
    print("model  on its own store  on one store")
    for number, (alone_s, shared_s) in enumerate(zip(apart, together, strict=True), 1):
        print(f"{number:5}  {alone_s:14.1f} s  {shared_s:10.1f} s")
    later = max(together) - max(apart)
    verdict = "holds" if later < LATER_S else "MISSED"
    print(f"the last: {later:+.1f} s, {max(together) / max(apart):.2f} × (below +10 s: {verdict})")


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
    found: dict[int, float] = {}
    while len(found) < n_models:
        for number, each in enumerate(sweeps):
            assert each.process is not None
            if number not in found and each.process.poll() is not None:
                found[number] = time.monotonic() - began
                assert each.process.returncode == 0, each.process.communicate()[1]
        time.sleep(0.1)
    return [found[number] for number in range(n_models)]


if __name__ == "__main__":
    main()
