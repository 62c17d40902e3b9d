"""The error of estimates against their budget: ours and three other ways to spend the prompts.

Draws samples of a full run's answers and prints how far Acc@1 and the fluctuation's SD are from the
full run's (the root of the mean squared error), for

    ours              operators/estimates
    uniform           prompts drawn at random from all, and the mean of their answers
    whole templates   one template for all facts, drawn at random; a larger budget asks a second
    PromptEval        a Rasch model per relation (Polo et al. 2024), `_peers.py`

After each error of another way comes the square of its ratio to ours: how many times as many
prompts they need for the same error, as errors fall with the root of the number of prompts. What
the draw of names adds to the SD is no matter of the others, and is given to them.

    python benchmarks/bench_curve.py                          made-up answers in MyriadLAMA's shape
    python benchmarks/bench_curve.py --like zero-shot --large --samples 20    MyriadLAMA's size
    python benchmarks/bench_curve.py --run results/demo --setting zero-shot   a full run's answers
    python benchmarks/bench_curve.py --figure curve.png
"""

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from _peers import Guess, prompt_eval, relations, uniform, whole_templates
from _simulation import LIKE, Logits, Made, Sizes, made_up, truth

from factsweep.operators.estimates.means import weighted_mean
from factsweep.operators.estimates.table import fluctuation_sd
from factsweep.operators.methods import METHODS
from factsweep.operators.tables.shared.canvas import SERIES, new_figure
from factsweep.pipeline.results import past_runs

SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
# MyriadLAMA in shape: a tenth of its relations with half of their facts, and all of it.
SMALL, LARGE = Sizes(4, 300, 100, 4), Sizes(41, 600, 100, 4)
METRICS = {"acc_at_1": "Acc@1", "fluctuation_sd": "SD"}
# Of fewer samples than this that have a number, its error would be that of the lucky ones.
_MOST = 0.9
_NONE = 1e-9  # of rounding

Found = tuple[float | None, float | None]  # in the order of METRICS
Method = Callable[[int, int], Found]  # of a number of prompts, and a seed


class Point(NamedTuple):
    """The errors of one method at one budget: null where it has no number."""

    n_prompts: int
    errors: dict[str, float | None]


def main() -> None:
    """Take the answers, ask each method at each budget, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=20, help="samples per share")
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES, help="0 to 1")
    parser.add_argument("--like", choices=LIKE, help="a setting of Llama3-8B")
    parser.add_argument("--large", action="store_true", help="a set of MyriadLAMA's size")
    parser.add_argument("--run", type=Path, help="a full run's folder, or a file of answers")
    parser.add_argument("--setting", help="of the run; its first one if not given")
    parser.add_argument("--figure", type=Path, help="where to draw the curve, as PNG")
    args = parser.parse_args()
    sizes = LARGE if args.large else SMALL
    logits = LIKE[args.like] if args.like else Logits()
    model = (
        of_run(args.run, args.setting)
        if args.run
        else made_up(**sizes._asdict(), seed=1, logits=logits)
    )
    n, true_values = int(model.n_prompts.sum()), truth(model)
    print(f"{len(model.n_names):,} facts, {n:,} prompts, {args.samples} samples each")
    print(", ".join(f"{name} {true_values[metric]:.4f}" for metric, name in METRICS.items()) + "\n")
    curves: dict[str, list[Point]] = {}
    methods = _methods(model, true_values["fluctuation_sd"])
    _line("prompts", *(f"{way}, {name}" for name in METRICS.values() for way in methods))
    _line("---", *["---"] * len(METRICS) * len(methods))
    for share in args.shares:
        started = time.monotonic()
        for name, method in methods.items():
            point = _point(method, round(share * n), true_values, args.samples)
            curves.setdefault(name, []).append(point)
        _show(share, {name: points[-1] for name, points in curves.items()})
        print(f"<!-- {time.monotonic() - started:.0f} s -->", flush=True)
    if args.figure:
        _draw(curves, n, args.figure)


def _methods(model: Made, sd: float) -> dict[str, Method]:
    """The estimator of each way; `sd` is that of the full run, including the draw of names."""
    all_relations = relations(model)
    share = np.array([relation.n_facts for relation in all_relations]) / len(model.n_names)
    names = sd**2 - share**2 @ [accuracies.var() for accuracies in model.accuracies]

    def peer(ask: Callable[..., Guess], number: int, n_prompts: int, seed: int) -> Found:
        guess = ask(all_relations, n_prompts, np.random.default_rng([seed, number]))
        spread = None if guess.templates is None else float(np.sqrt(guess.templates + names))
        return guess.acc_at_1, spread

    return {
        "ours": partial(_ours, model),
        "uniform": partial(peer, uniform, 1),
        "whole templates": partial(peer, whole_templates, 2),
        "PromptEval": partial(peer, prompt_eval, 3),
    }


def _ours(model: Made, n_prompts: int, seed: int) -> Found:
    sample, answers = model.sampled(n_prompts / int(model.n_prompts.sum()), seed)
    correct = (answers == 0).astype(np.float64)
    acc_at_1 = weighted_mean(sample, correct, np.ones(sample.n_facts))
    return acc_at_1.value, fluctuation_sd(sample, correct).value


def _point(
    method: Method, n_prompts: int, true_values: Mapping[str, float], n_samples: int
) -> Point:
    guesses = [method(n_prompts, seed) for seed in range(n_samples)]
    columns = zip(METRICS, zip(*guesses, strict=True), strict=True)
    return Point(
        n_prompts, {name: _error(list(estimates), true_values[name]) for name, estimates in columns}
    )


def _error(estimates: list[float | None], true_value: float) -> float | None:
    values = np.array([estimate for estimate in estimates if estimate is not None])
    if len(values) < max(1.0, _MOST * len(estimates)):
        return None
    return float(np.sqrt(((values - true_value) ** 2).mean()))


def _show(share: float, points: Mapping[str, Point]) -> None:
    cells = []
    for metric in METRICS:
        ours = points["ours"].errors[metric]
        for name, point in points.items():
            error = point.errors[metric]
            times = (
                ""
                if name == "ours" or not (ours and error) or ours < _NONE
                else f" x {(error / ours) ** 2:.1f}"
            )
            cells.append("–" if error is None else f"{error:.5f}{times}")
    _line(f"{share:.1%}", *cells)


def _draw(curves: Mapping[str, list[Point]], n_prompts: int, path: Path) -> None:
    """One panel per number: a line for each method, on logarithmic axes."""
    from matplotlib.ticker import LogLocator

    figure = new_figure(8.0, 3.6)
    panels = figure.subplots(1, len(METRICS))
    for axes, (metric, name) in zip(panels, METRICS.items(), strict=True):
        for (way, points), (colour, marker) in zip(curves.items(), SERIES, strict=False):
            errors = [(p.n_prompts, p.errors[metric]) for p in points if p.errors[metric]]
            x, y = zip(*errors, strict=True) if errors else ((), ())
            share = [100 * n / n_prompts for n in x]
            label = way if axes is panels[0] else None
            axes.plot(share, y, marker, ls="-", color=colour, markersize=4.5, label=label)
        axes.set(xscale="log", yscale="log", xlabel="% of the prompts", title=f"Error of {name}")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
        axes.grid(color="0.92")
        axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=len(curves), frameon=False, fontsize="small")
    figure.savefig(path, dpi=150, format="png")


def of_run(path: Path, setting: str | None) -> Made:
    """The answers of a full run, or of a Parquet file of matched answers."""
    rows = pl.read_parquet(path) if path.is_file() else _matched(path, setting)
    tables = [
        _table(relation_rows)
        for _, relation_rows in rows.group_by("relation_id", maintain_order=True)
    ]
    return Made(*zip(*tables, strict=True))


def _matched(folder: Path, setting: str | None) -> pl.DataFrame:
    branches = past_runs.settings(folder.name, past_runs.record(str(folder.parent), folder.name))
    branch = next(branch_ for branch_ in branches if setting in (None, branch_.setting))
    return branch.artifacts["matched"].read_all(METHODS[branch.method].measure.answers)


def _table(rows: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """A relation's answers, 0 if right, as facts × templates × names; and how many names."""
    keys = ("pair_id", "template_id")
    ranks = rows.select(pl.col(key).cast(pl.String).rank("dense") - 1 for key in keys)
    fact, template = ranks.to_numpy().astype(np.int64).T
    name = rows["subject_index"].cast(pl.Int64).to_numpy()
    answers = np.ones((fact.max() + 1, template.max() + 1, name.max() + 1), np.int8)
    answers[fact, template, name] = ~rows["correct"].to_numpy()
    n_names = np.bincount(fact) // answers.shape[1]
    return answers, n_names


def _line(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |")


if __name__ == "__main__":
    main()
