"""The curve of a study with a budget against that of full runs, over many draws of its prompts.

Twelve checkpoints are asked as `factsweep study … --full 2 budget=5%` asks them: the first and the
last all prompts, the others a share, with the nearer of the two as their control. Prints for each
the full run's Acc@1, the error of its estimates (the root of the mean squared error) with and
without that control, and the gain per prompt; then in how many draws the whole curve lies
in the band, and how many prompts were asked, and would be by estimates alone that are as exact.

    python benchmarks/bench_study.py                         made-up checkpoints
    python benchmarks/bench_study.py --make MODEL steps      copies of a model with ever less noise
    factsweep study noise 'model=glob(steps/*)' --axis step  asks them all prompts
    python benchmarks/bench_study.py --study results/noise   these checkpoints
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from _simulated_control import Known, estimated
from _simulation import Logits, Made, Sizes, drawn_answers, drawn_logit, drawn_relations
from bench_curve import of_run
from numpy.typing import NDArray

from factsweep.operators.estimates.intervals import add_bands
from factsweep.operators.estimates.means import weighted_mean
from factsweep.pipeline.results import past_runs

N_STEPS = 12
_SIZES = Sizes(n_relations=12, n_facts=60, n_templates=20, most_names=3)
_KEPT = 0.98  # of what decides an answer, from one checkpoint to the next
_MOST_NOISE = 0.25  # SDs of a weight; smollm2-135m knows nothing from there on


def main() -> None:
    """Make checkpoints, or draw samples of their answers and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=200, help="of prompts")
    parser.add_argument("--share", type=float, default=0.05, help="of the prompts; 0 to 1")
    parser.add_argument("--study", type=Path, help="a folder of full runs: results/NAME")
    parser.add_argument("--make", nargs=2, metavar=("MODEL", "FOLDER"), help="noisy checkpoints")
    args = parser.parse_args()
    if args.make:
        _make(*args.make)
        return
    runs_by_name = _of_study(args.study) if args.study else _made_up()
    _show(list(runs_by_name), list(runs_by_name.values()), args.share, args.draws)


def _show(names: Sequence[str], runs: Sequence[Made], share: float, n_draws: int) -> None:
    true_values = np.array([_acc_at_1(run) for run in runs])
    draws = [_draw(runs, true_values, share, seed) for seed in range(n_draws)]
    ours, uncontrolled = (
        np.array([getattr(draw, name) for draw in draws]) for name in ("ours", "alone")
    )
    error, by_itself = (
        np.sqrt(((estimates - true_values) ** 2).mean(0)) for estimates in (ours, uncontrolled)
    )
    worth = np.divide(by_itself**2, error**2, out=np.ones(len(true_values)), where=error > 0)
    print(f"| checkpoint | full run | error at {share:.0%} | by itself | a prompt is worth |")
    print("|---|---|---|---|---|")
    last = len(runs) - 1
    for place, name in enumerate(names):
        cells = ["asked in full", "–", "–"]
        if place not in (0, last):
            cells = [f"{error[place]:.4f}", f"{by_itself[place]:.4f}", f"x {worth[place]:.1f}"]
        print(f"| {name} | {true_values[place]:.4f} | {' | '.join(cells)} |")
    inside = np.array([draw.inside for draw in draws])
    n = int(runs[0].n_prompts.sum())
    n_asked = n * (2 + share * (last - 1))
    # As 1/share - 1 goes the variance of a sample without replacement.
    needed = 2 * n + sum(n / (1 + (1 / share - 1) / ratio) for ratio in worth[1:last])
    print(
        f"\nThe band has the whole curve in {inside.all(1).mean():.1%} of {n_draws} draws, and one "
        f"checkpoint in {inside[:, 1:last].mean():.1%}. Asked: {n_asked:,.0f} prompts; as exact "
        f"without a control: {needed:,.0f}; all: {n * len(runs):,}."
    )


class _Draw(NamedTuple):
    """What one draw of prompts finds of each checkpoint, and whether the band has the full run."""

    ours: list[float]
    alone: list[float]
    inside: NDArray[np.bool_]


def _draw(runs: Sequence[Made], true_values: NDArray[np.float64], share: float, seed: int) -> _Draw:
    last, ours, alone = len(runs) - 1, [], []
    for place, run in enumerate(runs):
        if place in (0, last):
            ours.append((*[float(true_values[place])] * 3, None))
            alone.append(float(true_values[place]))
            continue
        control = Known(runs[0 if place <= last - place else last])
        estimate = estimated(run, control, share, seed).estimate
        ours.append((*estimate[:3], share))
        sample, answers = run.sampled(share, seed)
        correct = (answers == 0).astype(np.float64)
        alone.append(weighted_mean(sample, correct, np.ones(sample.n_facts)).value or 0.0)
    columns = ("value", "ci_low", "ci_high", "estimated")
    points = pl.DataFrame(ours, dict.fromkeys(columns, pl.Float64), orient="row")
    band = add_bands(points.with_columns(setting=pl.lit("")))
    ends = band.select("band_low", "band_high").to_numpy()
    inside = (ends[:, 0] - 1e-9 <= true_values) & (true_values <= ends[:, 1] + 1e-9)
    return _Draw([estimate_and_error[0] for estimate_and_error in ours], alone, inside)


def _acc_at_1(run: Made) -> float:
    return float(np.concatenate([answers.mean(1) for answers in run.by_fact]).mean())


def _made_up() -> dict[str, Made]:
    """Checkpoints that know more and more, each like the one before."""
    walks = [np.random.default_rng([7, number]) for number in range(_SIZES.n_relations)]
    relations = list(drawn_relations(_SIZES, 1, Logits()))
    logits = [logit for _, logit, _ in relations]
    checkpoints = {}
    for step, mean in enumerate(np.linspace(-6.0, 1.5, N_STEPS)):
        answers = []
        for number, (walk, (_, logit, n_names)) in enumerate(zip(walks, relations, strict=True)):
            fresh = drawn_logit(walk, logit.shape, Logits())
            logits[number] = np.sqrt(_KEPT) * logits[number] + np.sqrt(1 - _KEPT) * fresh
            luck = np.random.default_rng(
                [8, number]
            )  # an answer changes where what decides it does
            answers.append(drawn_answers(luck, mean + logits[number], n_names))
        checkpoints[f"step-{step + 1}"] = Made(*zip(*answers, strict=True))
    return checkpoints


def _of_study(folder: Path) -> dict[str, Made]:
    names = [
        Path(run_folder).name for run_folder in past_runs.runs(str(folder.parent), folder.name)
    ]
    names.sort(key=lambda name: int("".join(filter(str.isdigit, name)) or 0))
    return {name: of_run(folder / name, None) for name in names}


def _make(model: str, folder: str) -> None:
    """Write copies of a model, the noise on whose weights has one direction and falls to none."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    net = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    clean = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    for step, size in enumerate(np.linspace(_MOST_NOISE, 0.0, N_STEPS), start=1):
        generator = torch.Generator().manual_seed(0)
        for name, parameter in net.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator) * clean[name].std()
            parameter.data = clean[name] + float(size) * noise * (parameter.ndim > 1)
        out = Path(folder) / f"step-{step}"
        net.save_pretrained(out)
        AutoTokenizer.from_pretrained(model).save_pretrained(out)
        print(f"{out}: noise of {size:.3f} SDs")


if __name__ == "__main__":
    main()
