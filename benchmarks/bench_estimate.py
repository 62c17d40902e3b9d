"""How often the intervals of estimates cover the full run, and how wide they are.

Makes up all answers of a model to a set (`operators/metrics/sampled/simulation.py`), so that the
numbers of the full run are known; draws samples of its prompts, and estimates from each. Prints one
row per metric and share of the prompts. A 95 % interval should cover in 93 to 97 % of the samples.

    python benchmarks/bench_estimate.py --small                  663 facts, 20 templates, 1-3 names
    python benchmarks/bench_estimate.py --samples 100 --shares 0.01 0.05    MyriadLAMA's size
    python benchmarks/bench_estimate.py --control --samples 20 --shares 0.01    Acc@1 with control=
"""

import argparse
import time

from operators.metrics.sampled.simulated_control import gains, later, two_models
from operators.metrics.sampled.simulation import LIKE, Logits, Made, Sizes, coverage, made_up

SHARES = (0.01, 0.05, 0.2)
_CHANGED = 0.02  # of a model's answers, from night to night


def main() -> None:
    """Make the answers, sample them, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=500, help="samples per share")
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES, help="0 to 1")
    parser.add_argument("--small", action="store_true", help="a set of some 700 facts")
    parser.add_argument("--like", choices=LIKE, help="a setting of Llama3-8B, of MyriadLAMA's size")
    parser.add_argument("--control", action="store_true", help="what earlier runs are worth")
    given = parser.parse_args()
    if given.control:
        _controls(small=given.small, n_samples=given.samples, shares=tuple(given.shares))
        return
    answers = _answers(small=given.small, like=given.like)
    n_prompts = int(answers.n_prompts.sum())
    print(f"{len(answers.n_names):,} facts, {n_prompts:,} prompts, {given.samples} samples each\n")
    _line("metric", "prompts", "full run", "interval in", "covers", "half-width", "SD", "bias / SD")
    _line(*["---"] * 8)
    for share in given.shares:
        started = time.monotonic()
        for row in coverage(answers, share, n_samples=given.samples).iter_rows(named=True):
            _show(row, given.samples)
        print(f"<!-- {share:.0%}: {time.monotonic() - started:.0f} s -->", flush=True)


def _controls(*, small: bool, n_samples: int, shares: tuple[float, ...]) -> None:
    """One row per earlier run and share: the interval of Acc@1 with it."""
    sizes = Sizes(12, 60, 20, 3) if small else Sizes(41, 600, 100, 4)
    _line("control", "prompts", "covers", "half-width", "SD", "bias / SD", "worth")
    _line(*["---"] * 7)
    for name, alike in (("the same model", None), *((f"alike {a}", a) for a in (0.9, 0.5, 0))):
        made, earlier = two_models(sizes, seed=1, alike=alike or 0.0)
        earlier = later(made, _CHANGED, seed=2) if alike is None else earlier
        for row in gains(made, earlier, shares, n_samples=n_samples).iter_rows():
            share, covered, half, sd, bias, gain = row
            cells = f"{covered:.1%}", f"{half:.5f}", f"{sd:.5f}", f"{bias:+.2f}", f"x {gain:.2f}"
            _line(name, f"{share:.0%}", *cells)


def _answers(*, small: bool, like: str | None) -> Made:
    logits = LIKE[like] if like else Logits()
    if small:
        return made_up(n_relations=12, n_facts=60, n_templates=20, most_names=3, seed=1)
    return made_up(
        n_relations=41, n_facts=600, n_templates=100, most_names=4, seed=1, logits=logits
    )


def _show(row: dict[str, object], n_samples: int) -> None:
    share, truth, n, covered, half, sd, bias = list(row.values())[1:]
    measured = ["–"] * 4
    if covered is not None:
        measured = [f"{covered:.1%}", f"{half:.5f}", "–", "–"]
    if sd is not None:
        measured[2:] = [f"{sd:.5f}", f"{bias:+.2f}"]
    _line(
        row["metric"], f"{share:.0%}", f"{truth:.4f}", f"{int(str(n)) / n_samples:.0%}", *measured
    )


def _line(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |")


if __name__ == "__main__":
    main()
