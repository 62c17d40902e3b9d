"""What factsweep does, as functions: the command line and `import factsweep` call them.

Configuration is given as on the command line, or by keyword: `run("seed=1")` is `run(seed=1)`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from factsweep.operators.errors import NotAtHandError
from factsweep.pipeline.config.folders import groups
from factsweep.pipeline.config.literal_overrides import quote, types_of
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load as settings
from factsweep.pipeline.results.results import Results, load

_COUNTS = {"setting": pl.String, "stage": pl.String, "prompts": pl.Int64, "answers_left": pl.Int64}


@dataclass(frozen=True)
class Planned:
    """The missing work of a run; prints as `factsweep plan` does.

    `work` has one row per setting and stage that an engine works on: setting, stage, prompts,
    answers_left.
    """

    text: str
    work: pl.DataFrame

    def __str__(self) -> str:
        return self.text


def plan(*overrides: str, **fields: object) -> Planned:
    """Count the computed and the missing parts of a run; computes and writes nothing.

        print(plan(model="gpt2", benchmark="myriadlama-mini"))

    Raises:
        InputError: an argument is wrong.
    """
    words = format_overrides(*overrides, **fields)
    try:
        return forecast_of(settings(words))
    except NotAtHandError:
        return plan_absent(words)


def plan_absent(overrides: Sequence[str]) -> Planned:
    """The approximate plan of a model whose files are not at hand: from its configuration alone.

    Raises:
        InputError: an argument is wrong.
    """
    overrides = [*overrides, "model.source=absent"]
    run = settings(overrides)
    # Several GPUs are asked for, which are elsewhere.
    is_elsewhere = run.model.tensor_parallel > 1 and run.cluster.device == "auto"
    return forecast_of(settings([*overrides, "cluster.device=cuda"]) if is_elsewhere else run)


def forecast_of(settings: Run) -> Planned:
    """Count the computed and the missing parts of a run; computes and writes nothing.

    Raises:
        InputError: an argument is wrong.
    """
    from factsweep.pipeline.runs.forecast import forecast, lines

    planned, forecasts = forecast(settings)
    work = [
        (figures.branch.title, stage, n, figures.n_left[stage])
        for figures in forecasts
        for stage, n in figures.n_asked.items()
    ]
    return Planned("\n".join(lines(planned, forecasts)), pl.DataFrame(work, _COUNTS, orient="row"))


def run(*overrides: str, **fields: object) -> Results:
    """Compute the missing parts of a run, write its results, and return them.

        run("sweep=demo").metrics

    Raises:
        InputError: an argument is wrong.
        DecodingError: too many prompts have no answer; the results are written all the same.
    """
    config = settings(format_overrides(*overrides, **fields))
    from factsweep.pipeline.runs.run import run as compute

    compute(config)
    return load(config.folder)


def estimate(*overrides: str, **fields: object) -> pl.DataFrame:
    """Ask a part of a run's prompts, and estimate what all of them would give.

        estimate(model="gpt2", benchmark="myriadlama", budget="1%")

    One row per setting and metric: value, full_low and full_high (of the full run), ci_low and
    ci_high (of other facts), share (of the prompts), n, and why a number is null.

    Raises:
        InputError: an argument is wrong.
    """
    from factsweep.pipeline.runs.estimate import estimate as compute

    return compute(settings(format_overrides(*overrides, **fields)))


def prompts(*overrides: str, **fields: object) -> pl.DataFrame:
    """The prompts of a setting, for another system to answer; `score` takes its answers.

        prompts(prompt="zero-shot")  # prompt_id, prompt, asked

    Raises:
        InputError: an argument is wrong, or there are several settings.
    """
    from factsweep.pipeline.runs.prompts import iterate_prompts

    return pl.concat(iterate_prompts(settings(format_overrides(*overrides, **fields))))


def score(*overrides: str, **fields: object) -> Results:
    """Measure answers of another system, write the results, and return them.

        score(answers="answers.jsonl", prompt="zero-shot", run_name="echo")

    Raises:
        InputError: an argument is wrong, or an answer fits no prompt.
        DecodingError: too many prompts have no answer; the results are written all the same.
    """
    config = settings(format_overrides(*overrides, **fields))
    from factsweep.pipeline.runs.run import score as measure

    measure(config)
    return load(config.folder)


def format_overrides(*overrides: str, **fields: object) -> list[str]:
    """The overrides as on the command line; texts by keyword are quoted.

    >>> format_overrides("sweep=demo", seed=1, run_name="a, b", **{"benchmark.relations": ["P17"]})
    ['sweep=demo', 'seed=1', "run_name='a, b'", "benchmark.relations=['P17']"]
    """
    return [*overrides, *(f"{name}={_format_value(name, value)}" for name, value in fields.items())]


def _format_value(name: str, value: object) -> str:
    is_text = name not in groups() and types_of(name) in (None, {str})
    return _literal_of_value(value) if is_text or not isinstance(value, str) else value


def _literal_of_value(value: Any) -> str:
    if isinstance(value, str | Path):
        return quote(str(value))
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_literal_of_value, value))}]"
    if isinstance(value, Mapping):
        return (
            f"{{{','.join(f'{key}:{_literal_of_value(inner)}' for key, inner in value.items())}}}"
        )
    return str(value)
