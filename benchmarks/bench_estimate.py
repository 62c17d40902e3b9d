"""How often the intervals of estimates cover the full run, and how wide they are.

Makes up all answers of a model to a set (`benchmarks/_simulation.py`), so that the
numbers of the full run are known; draws samples of its prompts, and estimates from each. Prints one
row per metric and share of the prompts. A 95 % interval should cover in 93 to 97 % of the samples.
With `--run` the answers are those of full runs of yours: folders of results, or Parquet files of
matched answers (`FullRun` says with what columns). `--figure` draws the coverage.

    python benchmarks/bench_estimate.py --small                  663 facts, 20 templates, 1-3 names
    python benchmarks/bench_estimate.py --samples 100 --shares 0.01 0.05    MyriadLAMA's size
    python benchmarks/bench_estimate.py --run results/RUN    the answers of a full run
    python benchmarks/bench_estimate.py --control --samples 20 --shares 0.01    with control=
"""

import argparse
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

import polars as pl
from _full_run import FullRun
from _simulated_control import gains, later, two_models
from _simulation import LIKE, Logits, Made, Sizes, coverage, made_up

from factsweep.operators.methods import METHODS
from factsweep.operators.tables.shared.canvas import SERIES, new_figure
from factsweep.pipeline.results import past_runs

SHARES = (0.01, 0.05, 0.2)
_CHANGED = 0.02  # of a model's answers, from night to night


def main() -> None:
    """Make the answers, sample them, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=500, help="samples per share")
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES, help="0 to 1")
    parser.add_argument("--small", action="store_true", help="a set of some 700 facts")
    parser.add_argument("--like", choices=LIKE, help="a setting of Llama3-8B, of MyriadLAMA's size")
    parser.add_argument("--run", type=Path, nargs="+", help="full runs: folders of results")
    parser.add_argument("--figure", type=Path, help="where to draw the coverage, as PNG")
    parser.add_argument("--control", action="store_true", help="what earlier runs are worth")
    args = parser.parse_args()
    if args.control:
        _controls(small=args.small, n_samples=args.samples, shares=tuple(args.shares))
        return
    tables: dict[str, list[pl.DataFrame]] = {}
    for title, covering in _tables(args):
        print(f"{title}, {args.samples} samples each\n")
        _line("metric", "prompts", "full run", "interval in", "covers", "half-width", "SD", "bias")
        _line(*["---"] * 8)
        for share in args.shares:
            started = time.monotonic()
            coverage_table = covering(share, n_samples=args.samples)
            for row in coverage_table.iter_rows(named=True):
                _show(row, args.samples)
            print(f"<!-- {share:.0%}: {time.monotonic() - started:.0f} s -->", flush=True)
            tables.setdefault(title, []).append(coverage_table)
    if args.figure:
        _draw({title: pl.concat(parts) for title, parts in tables.items()}, args.figure)


class _Covering(Protocol):
    def __call__(self, share: float, *, n_samples: int) -> pl.DataFrame: ...


def _tables(args: argparse.Namespace) -> Iterator[tuple[str, _Covering]]:
    """The sampled populations: a title, and a function that measures coverage."""
    if args.run is None:
        model = _answers(small=args.small, like=args.like)
        n = int(model.n_prompts.sum())
        yield f"{len(model.n_names):,} facts, {n:,} prompts", partial(coverage, model)
        return
    for path in args.run:
        yield from _of_run(path)


def _of_run(path: Path) -> Iterator[tuple[str, _Covering]]:
    """The settings of a full run, or the one whose matched answers a file has."""
    if path.is_file():
        full = FullRun(pl.read_parquet(path))
        yield f"{path.stem}: {full.answers.height:,} prompts", full.coverage
        return
    for branch in past_runs.settings(path.name, past_runs.record(str(path.parent), path.name)):
        answers = branch.artifacts["matched"].read_all(METHODS[branch.method].measure.answers)
        title = f"{branch}: {answers.height:,} prompts"
        yield title, partial(FullRun(answers).coverage, seed=branch.seed)


def _draw(coverage_of: Mapping[str, pl.DataFrame], path: Path) -> None:
    """One panel per table: a point for each metric and share; the band is 93 to 97 %."""
    figure = new_figure(9.0, 3.6)
    panels = figure.subplots(1, len(coverage_of), sharey=True, squeeze=False)[0]
    for axes, (title, rows) in zip(panels, coverage_of.items(), strict=True):
        covered_rows = rows.drop_nulls("covered")
        metrics = covered_rows["metric"].unique(maintain_order=True).to_list()
        axes.axhspan(93, 97, color="0.92", zorder=0)
        parts = covered_rows.partition_by("share", maintain_order=True)
        for number, (part, (colour, marker)) in enumerate(zip(parts, SERIES, strict=False)):
            places = [metrics.index(metric) + (number - 1) * 0.2 for metric in part["metric"]]
            label = f"{part['share'][0]:.0%} of the prompts" if axes is panels[0] else None
            axes.plot(places, 100 * part["covered"], marker, ls="", color=colour, label=label)
        axes.set_xticks(range(len(metrics)), metrics, rotation=40, ha="right", fontsize="small")
        axes.set_title(title, fontsize="small")
        axes.set_ylim(85, 101)
    panels[0].set_ylabel("% of the intervals cover")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    figure.savefig(path, dpi=110, format="png")


def _controls(*, small: bool, n_samples: int, shares: tuple[float, ...]) -> None:
    """One row per earlier run and share: the interval of Acc@1 with it."""
    sizes = Sizes(12, 60, 20, 3) if small else Sizes(41, 600, 100, 4)
    _line("control", "prompts", "covers", "half-width", "SD", "bias / SD", "worth")
    _line(*["---"] * 8)
    for name, alike in (("the same model", None), *((f"alike {a}", a) for a in (0.9, 0.5, 0))):
        model, earlier = two_models(sizes, seed=1, alike=alike or 0.0)
        earlier = later(model, _CHANGED, seed=2) if alike is None else earlier
        rows = gains(model, earlier, shares, n_samples=n_samples)
        for share, covered, half, sd, bias, gain in rows.iter_rows():
            cells = f"{half:.5f}", f"{sd:.5f}", f"{bias:+.2f}", f"x {gain:.2f}"
            _line(name, f"{share:.0%}", f"{covered:.1%}", *cells)


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
