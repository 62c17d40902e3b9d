"""Results: the numbers, tables, figures and answers of one run, read from its folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import BESIDE, Report
from factsweep.operators.tables.formats import markdown
from factsweep.operators.wording import count
from factsweep.pipeline.results import past_runs, run_record
from factsweep.pipeline.results.answers import answers
from factsweep.pipeline.results.past_runs import PastBranch, Record
from factsweep.pipeline.results.report import PAGE, build_report
from factsweep.pipeline.storage.store import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Results:
    """The results of a run in `folder`, as Polars tables and Matplotlib figures; prints as a card.

    `record` is the content of run.json.
    """

    folder: str
    record: Record

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """Every number with its interval: one row per metric, setting and slice."""
        return past_runs.metrics(Store(self.folder), self.record)

    @property
    def card(self) -> pl.DataFrame:
        """The main numbers, one column per setting."""
        return METHODS[self._benchmark["method"]].show.card(self.metrics)

    @cached_property
    def facts(self) -> Facts:
        """The relations, templates and pairs of the prompts."""
        return self.branches[0].facts

    def answers(self, relation: str | None = None) -> pl.DataFrame:
        """Every prompt with its fact, its text and its answer; of one relation, if it is named.

        All relations of a large benchmark may not fit into memory at once. Columns:
        `pipeline.results.answers.answers`.

        Raises:
            InputError: the run asked no such relation, or its artifacts are gone.
        """
        settings = [answers(branch, relation) for branch in self.branches]
        return pl.concat(settings, how="diagonal")

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """The tables of the benchmark's method, by name; the same as in the folder tables/."""
        return self._report.tables

    @property
    def figures(self) -> Mapping[str, "Figure"]:
        """Its figures, by name."""
        return self._report.figures

    @cached_property
    def _report(self) -> Report:
        return build_report(self.branches)

    @cached_property
    def branches(self) -> list[PastBranch]:
        """Its settings, with their artifacts."""
        return list(past_runs.settings(self.record["run"]["name"], self.record))

    @property
    def _benchmark(self) -> Record:
        benchmark: Record = self.record["run"]["benchmark"]
        return benchmark

    def __str__(self) -> str:
        run, page = self.record["run"], Store(self.folder).where(PAGE)
        model = run["model"]
        computed = "" if run["answers"] or model.get("endpoint") else f" in {model['dtype']}"
        trusted = f"model.trust_remote_code=true: code of {model['id']} was allowed to run\n"
        return (
            f"{model['name']} on {self._benchmark['name']}{computed}{_slice(self._benchmark)}\n\n"
            f"{markdown(self.card)}\n"
            f"{_describe_answers(self.record.get('cost', {}))}"
            f"{trusted if model['trust_remote_code'] else ''}"
            f"page: {page}; tables, figures and every number by relation: "
            f"{Store(self.folder).where()}/"
        )


def load(folder: str | Path, artifacts: str | Path | None = None) -> Results:
    """The results of a finished run, from its folder or URL.

    Facts, answers, tables and figures are made from the run's artifacts; `artifacts` names their
    store if it has moved.

        load("results/demo").answers(relation="P36")

    Raises:
        InputError: the folder has no results.
        DamagedFileError: run.json is damaged.
    """
    folder = str(folder)
    try:
        content = run_record.read(Store(folder))
    except FileNotFoundError as error:
        if Store(folder).exists(run_record.ESTIMATE):
            raise InputError(
                f"{folder} has estimates from a part of the prompts, and load takes a full run; "
                f"read {folder}/{run_record.ESTIMATED}."
            ) from error
        raise InputError(f"{folder} has no run.json; give the folder of a finished run.") from error
    if artifacts is not None:
        content["run"]["artifacts"] = str(artifacts)
    return Results(folder, content)


def _describe_answers(cost: Mapping[str, Mapping[str, float]]) -> str:
    r"""The kinds of answers, if there are more than one per prompt.

    >>> _describe_answers({"generations": {"answers": 960}, "canary": {"answers": 80}})
    '1,040 answers: 960 to the prompts, 80 canary (asked again, to see whether answers change)\n'
    """
    counts = {stage: n for stage, sums in cost.items() if (n := int(sums.get("answers", 0)))}
    if BESIDE.keys().isdisjoint(counts):
        return ""
    parts = [
        f"{n:,} {stage} ({BESIDE[stage]})" if stage in BESIDE else f"{n:,} to the prompts"
        for stage, n in counts.items()
    ]
    return f"{count(sum(counts.values()), 'answer')}: {', '.join(parts)}\n"


def _slice(benchmark: Record) -> str:
    limits = {
        ("relation", ""): len(benchmark["relations"] or ()),
        ("pair", " per relation"): benchmark["pairs_per_relation"],
        ("name", " per subject"): benchmark["names_per_subject"],
    }
    chosen = [f"{count(n, noun)}{unit}" for (noun, unit), n in limits.items() if n]
    return f", a slice: {', '.join(chosen)}" if chosen else ""
