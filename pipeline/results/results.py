"""Results: what one run measured, read from its folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.ability import BESIDE
from factsweep.operators.methods.method import Report
from factsweep.operators.tables.formats import markdown
from factsweep.operators.wording import count
from factsweep.pipeline.results import past, record
from factsweep.pipeline.results.past import PastBranch, Record
from factsweep.pipeline.results.report import PAGE, reported
from factsweep.pipeline.storage.store import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Results:
    """The results of a run, as Polars tables and Matplotlib figures; printed, they are its card.

    `folder` is where they lie; `record` is what stands in run.json.
    """

    folder: str
    record: Record

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """Every number with its interval: one row per metric, setting and slice."""
        return past.metrics(Store(self.folder))

    @property
    def card(self) -> pl.DataFrame:
        """The main numbers, one column per setting."""
        return METHODS[self._benchmark["method"]].show.card(self.metrics)

    @cached_property
    def facts(self) -> Facts:
        """The relations, templates and pairs that were asked."""
        return self._branches[0].facts

    def answers(self, relation: str | None = None) -> pl.DataFrame:
        """Every prompt with its fact, its text and its answer; of one relation, if it is named.

        All relations of a large benchmark may not fit into memory at once. Columns:
        `pipeline.results.past.answers`.

        Raises:
            InputError: the run asked nothing of that relation, or its artifacts are gone.
        """
        found = [past.answers(branch, relation) for branch in self._branches]
        return pl.concat(found, how="diagonal")

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
        return reported(self._branches)

    @cached_property
    def _branches(self) -> list[PastBranch]:
        return list(past.settings(self.record["run"]["name"], self.record))

    @property
    def _benchmark(self) -> Record:
        found: Record = self.record["run"]["benchmark"]
        return found

    def __str__(self) -> str:
        run, page = self.record["run"], Store(self.folder).where(PAGE)
        model = run["model"]
        computed = "" if run["answers"] or model.get("endpoint") else f" in {model['dtype']}"
        trusted = f"model.trust_remote_code=true: code of {model['id']} was allowed to run\n"
        return (
            f"{model['name']} on {self._benchmark['name']}{computed}{_part(self._benchmark)}\n\n"
            f"{markdown(self.card)}\n"
            f"{_answers(self.record.get('cost', {}))}"
            f"{trusted if model['trust_remote_code'] else ''}"
            f"page: {page}; tables, figures and every number by relation: "
            f"{Store(self.folder).where()}/"
        )


def load(folder: str | Path, artifacts: str | Path | None = None) -> Results:
    """The results of a run that is done, from its folder or URL.

    Metrics need nothing else. Facts, answers, tables and figures are made from the run's artifacts;
    say where these lie if it is not where the run had them, which may be relative to the current
    folder.

        load("results/demo").answers(relation="P36")

    Raises:
        InputError: there are none.
        DamagedFileError: run.json is not what was written.
    """
    folder = str(folder)
    try:
        found = record.read(Store(folder))
    except FileNotFoundError as error:
        if Store(folder).exists(record.ESTIMATE):
            raise InputError(
                f"{folder} has estimates from a part of the prompts, and load takes a full run; "
                f"read {folder}/{record.ESTIMATED}."
            ) from error
        raise InputError(f"{folder} has no run.json; give the folder of a finished run.") from error
    if artifacts is not None:
        found["run"]["artifacts"] = str(artifacts)
    return Results(folder, found)


def _answers(cost: Mapping[str, Mapping[str, float]]) -> str:
    r"""What the answers are, where there are others than one to each prompt.

    >>> _answers({"generations": {"answers": 960}, "canary": {"answers": 80}})
    '1,040 answers: 960 to the prompts, 80 canary (asked again, to see whether answers change)\n'
    """
    found = {stage: n for stage, each in cost.items() if (n := int(each.get("answers", 0)))}
    parts = [
        f"{n:,} {stage} ({BESIDE[stage]})" if stage in BESIDE else f"{n:,} to the prompts"
        for stage, n in found.items()
    ]
    others = not BESIDE.keys().isdisjoint(found)
    return f"{count(sum(found.values()), 'answer')}: {', '.join(parts)}\n" if others else ""


def _part(benchmark: Record) -> str:
    """Say so, if only a part of the benchmark was measured."""
    limits = {
        ("relation", ""): len(benchmark["relations"] or ()),
        ("pair", " per relation"): benchmark["pairs_per_relation"],
        ("name", " per subject"): benchmark["names_per_subject"],
    }
    chosen = [f"{count(n, noun)}{of}" for (noun, of), n in limits.items() if n]
    return f", a slice: {', '.join(chosen)}" if chosen else ""
