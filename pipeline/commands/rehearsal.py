"""rehearse: a sweep from end to end without its model, killed once and resumed."""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from factsweep.operators.wording import count
from factsweep.pipeline.commands.arguments import Parser
from factsweep.pipeline.commands.run import print_card

if TYPE_CHECKING:
    from factsweep.pipeline.config.run import Run

# No weights, another engine, and GPUs that Ray only counts: all of it is part of recipes.
_ABSENT = ("model.source=absent", "cluster.device=cuda", "cluster.address=null")
_FAKE = tuple(f"decoding.{engine}=fake" for engine in ("engine", "scorer", "comparer"))
_FOLDER = Path("rehearsal")
_KILLED_AT = 0.25  # of all answers
_LOOK_EVERY_S = 1.0


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb to the command line."""
    rehearse = verbs.add_parser(
        "rehearse",
        description="run a whole sweep with made-up answers: no GPU, weights or network",
        examples=["factsweep rehearse model=llama3-70b benchmark=myriadlama sweep=paper"],
    )
    about = (
        "All stages and shards, with the placement of the real engines on GPUs that Ray pretends. "
        "The driver is killed at a quarter of the answers, and the same command resumes. The model "
        f"is called rehearsal-… in every table; all files lie in {_FOLDER}/, away from results."
    )
    rehearse.take(keys=None, about=about, run=_rehearse)


def add_stand_ins(overrides: Sequence[str]) -> list[str]:
    """The overrides of a rehearsal: those of the sweep, and its stand-ins, names and folders."""
    from factsweep.pipeline.config.settings import load

    overrides = [*overrides, *_ABSENT, *_FAKE]
    run = load(overrides)
    name = f"rehearsal-{run.name.removeprefix('fake-')}"
    return [
        *overrides,
        f"model.name=rehearsal-{run.model.name}",
        f"run_name={name}",
        f"artifacts={_FOLDER / name / 'artifacts'}",
        f"results={_FOLDER}",
    ]


def _rehearse(args: argparse.Namespace) -> int:
    from factsweep.pipeline.config.settings import load
    from factsweep.pipeline.decoding.progress import clock
    from factsweep.pipeline.runs.run import run

    overrides = add_stand_ins(args.overrides)
    settings, began = load(overrides), time.monotonic()
    folder = _FOLDER / settings.name
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier rehearsal
    killed = _run_and_kill(settings, overrides)
    run(settings)
    print_card(settings.folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    n_bytes = sum(path.stat().st_size for path in files)
    print(
        f"rehearsal: {killed}; {clock(time.monotonic() - began)} in all, "
        f"{count(len(files), 'file')} with {n_bytes / 1e6:,.0f} MB in {folder}/, to be removed. "
        "No number of it is a model's."
    )
    return 0


def _run_and_kill(settings: "Run", overrides: Sequence[str]) -> str:
    """Run in another process, and kill that once answers are published; returns what happened."""
    from factsweep.pipeline.runs.run_files import read_pulse

    command = [sys.executable, "-P", "-m", "factsweep.pipeline.cli", "run", *overrides]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            pulse = read_pulse(settings)
            counts = {} if pulse is None else pulse.counts
            n, n_all = (int(counts.get(name, 0)) for name in ("answers", "all_answers"))
            if n_all and n >= _KILLED_AT * n_all:
                return f"killed at {n:,} of {n_all:,} answers, and resumed"
            time.sleep(_LOOK_EVERY_S)
    finally:
        process.kill()
        process.wait()
    return "over before it could be killed"
