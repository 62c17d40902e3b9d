"""Past runs: their records, settings and numbers, by the folders of results."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Method
from factsweep.operators.wording import first_of, suggestion
from factsweep.operators.wording.safe_names import check_apart, check_run, fold_name
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import run_of_record
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results.run_record import (
    ESTIMATE,
    METRICS,
    NAME,
    PROGRESS,
    read,
    read_file,
    read_run,
)
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.storage import integrity
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.lookup import open_artifact
from factsweep.pipeline.storage.shard import ShardPlace, decode
from factsweep.pipeline.storage.store import Store, StoredFile

Record = Mapping[str, Any]


@dataclass(frozen=True)
class PastBranch:
    """One setting of a past run, its artifacts by stage; `extra_outputs` are blocks of samples."""

    run: str
    model: str
    benchmark: str
    method: str
    setting: str
    billions_of_parameters: float | None
    training_cutoff: str | None
    artifacts: dict[str, Artifact]
    record: Mapping[str, Any]
    extra_outputs: tuple[Artifact, ...] = ()

    @property
    def seed(self) -> int:
        """The seed of all draws."""
        return int(self.record["run"]["seed"])

    @property
    def answered_by(self) -> Literal["engine", "server", "another system"]:
        """The kind of engine that answered: its own, or one whose software is unknown."""
        run = self.record["run"]
        if run["answers"]:
            return "another system"
        return "server" if run["model"].get("endpoint") else "engine"

    @property
    def metrics(self) -> Artifact:
        """Its metrics."""
        return self.artifacts["metrics"]

    @property
    def benchmark_method(self) -> Method:
        """The method of its benchmark."""
        return METHODS[self.method]

    @property
    def facts(self) -> Facts:
        """The facts of its prompts; each access reads them."""
        return facts_stage.load(self.artifacts["facts"])

    @property
    def answers(self) -> Artifact:
        """The answers to all its prompts, or the scores of their texts."""
        return self.artifacts[self.benchmark_method.ask.ability.answers]

    @property
    def relations(self) -> list[str]:
        """The relations with matched answers."""
        return self.artifacts["matched"].shards(self.benchmark_method.measure.answers)

    def matched_answers(self, relation_id: str | None = None) -> pl.DataFrame:
        """The matched answers to its prompts, or to those of a relation."""
        matched, table = self.artifacts["matched"], self.benchmark_method.measure.answers
        return matched.read_all(table) if relation_id is None else matched.read(table, relation_id)

    def read_matched(self, relation_id: str) -> dict[str, pl.DataFrame]:
        """The matched tables of a relation, by name."""
        artifact = self.artifacts["matched"]
        return {
            table: artifact.read(table, relation_id)
            for table in self.benchmark_method.measure.matched
            if relation_id in artifact.shards(table)
        }

    def evidence(self, matched: Mapping[str, pl.DataFrame], facts: Facts) -> pl.DataFrame:
        """Its evidence on each fact of a relation (columns: EVIDENCE), from its matched tables.

        Raises:
            InputError: its benchmark has none.
        """
        evidence = self.benchmark_method.evidence
        if evidence is None:
            raise InputError(
                f"{self.run} measured {self.benchmark}, whose answers are not right or wrong by "
                "themselves; leave it out."
            )
        return evidence(matched, facts)

    def __str__(self) -> str:
        return f"{self.model}, {self.setting} on {self.benchmark}"


def branches(results: str, names: Sequence[str] = ()) -> list[PastBranch]:
    """The settings of the named runs, or of all, without duplicates: runs may share artifacts.

    Raises:
        InputError: there are none.
    """
    branch_by_folder: dict[str, PastBranch] = {}
    for name in names or list_runs(results):
        for branch in settings(name, record(results, name)):
            branch_by_folder.setdefault(branch.metrics.folder, branch)
    if not branch_by_folder:
        raise InputError(f"{results} has no run with a run.json; run something first.")
    return list(branch_by_folder.values())


def by_title(results: str, name: str) -> dict[str, PastBranch]:
    """The settings of a run that was asked all of its prompts, by title.

    Raises:
        InputError: there is no such run.
    """
    return {branch.setting: branch for branch in branches(results, [name])}


def list_runs(results: str, name: str = NAME) -> list[str]:
    """The names of the runs that have a file `name`, without the runs of nights."""
    store = Store(results)
    return [run for run in store.folders("") if name in store.names(run)]


def runs(results: str, name: str) -> list[str]:
    """The runs that a name stands for: the run itself, or the runs of a night.

    Raises:
        InputError: there is no such run.
    """
    if not (names := _list_runs_with_file(results, name, NAME)):
        raise _unknown_run_error(results, name)
    return names


def list_estimated(results: str, name: str) -> list[str]:
    """The runs that a name stands for and that asked a part of their prompts."""
    return _list_runs_with_file(results, name, ESTIMATE)


def _list_runs_with_file(results: str, name: str, file: str) -> list[str]:
    store = Store(results)
    names = (name, *(f"{name}/{folder}" for folder in store.folders(name)))
    return [run for run in names if file in store.names(run)]


def record(results: str, name: str) -> Record:
    """The content of a run's run.json.

    Raises:
        InputError: there is no such run.
        DamagedFileError: the file is damaged.
    """
    try:
        content = read(Store(below(results, name)))
    except FileNotFoundError as error:
        raise _unknown_run_error(results, name) from error
    if (own_name := content["run"]["name"]) != name:
        LOG.warning("%s/%s holds the results of the run %s.", results, name, own_name)
    return content


def is_done(results: str, name: str) -> bool:
    """Whether a run of that name, or an estimate, has results."""
    store = Store(below(results, name))
    return store.exists(NAME) or store.exists(ESTIMATE)


def run_of(results: str, name: str) -> Run:
    """The configuration of a run or an estimate that is running, was killed or is done.

    Raises:
        InputError: there is no such run.
        DamagedFileError: its record is damaged.
    """
    check_run(name)
    try:
        run = read_run(Store(below(results, name)))
    except FileNotFoundError as error:
        raise _unknown_run_error(results, name, list_begun(results)) from error
    return replace(run_of_record(run), name=name, results=results, artifacts=run["artifacts"])


def list_begun(results: str) -> list[str]:
    """The names of all runs that have begun, with those of nights and studies."""
    store = Store(results)
    tops = store.folders("")
    inner_names = (f"{top}/{folder}" for top in tops for folder in store.folders(top))
    return [name for name in (*tops, *inner_names) if _has_begun(store, name)]


def list_parts(results: str, name: str) -> list[str]:
    """The runs of a night or a study; else the name itself."""
    check_run(name)
    store = Store(results)
    if _has_begun(store, name):
        return [name]
    inner_names = (f"{name}/{folder}" for folder in store.folders(name))
    return [name for name in inner_names if _has_begun(store, name)] or [name]


def has_begun(results: str, name: str) -> bool:
    """Whether a run of that name has begun; false if no run can have that name."""
    try:
        check_run(name)
    except InputError:
        return False
    return _has_begun(Store(results), name)


def _has_begun(store: Store, name: str) -> bool:
    return not {NAME, ESTIMATE, PROGRESS}.isdisjoint(store.names(name))


def check_free(results: str, name: str) -> None:
    """Refuse the name of a run that some file systems take for that of another."""
    store, parts = Store(results), name.split("/")
    for depth, part in enumerate(parts):
        siblings = store.folders("/".join(parts[:depth]))
        similar = [sibling for sibling in siblings if fold_name(sibling) == fold_name(part)]
        check_apart([*similar, part], f"the runs in {store.where()}:")


def _unknown_run_error(results: str, name: str, names: Sequence[str] = ()) -> InputError:
    if list_estimated(results, name):
        return InputError(
            f"{name} in {results} has estimates from a part of the prompts, where a full run is "
            "needed; run it without budget=: no prompt is asked twice."
        )
    names = names or list_runs(results)
    return InputError(
        f"{results} has no run {name}; it has {first_of(names) or 'none'}.{suggestion(name, names)}"
    )


def settings(name: str, content: Record) -> Iterator[PastBranch]:
    """The settings of a run, from its record.

    Raises:
        InputError: an artifact of one is gone.
        DamagedFileError: an artifact is damaged, or was made of answers that have been replaced.
    """
    store = Store(content["run"]["artifacts"])
    for title, folders in content["artifacts"].items():
        artifacts = [open_artifact(store, folder) for folder in folders]
        for artifact in artifacts:
            if not artifact.is_complete():
                raise InputError(
                    f"{store.where(artifact.folder)} of the run {name} is not complete; "
                    "run it again."
                )
        for finding in integrity.find_outdated(artifacts):
            raise DamagedFileError(finding.sentence, finding.name)
        yield setting(name, content, title, artifacts)


def setting(name: str, content: Record, title: str, artifacts: Iterable[Artifact]) -> PastBranch:
    """One setting of a run, by its title."""
    run, artifacts = content["run"], list(artifacts)
    block_stages = METHODS[run["benchmark"]["method"]].ask.ability.extra_tables
    return PastBranch(
        run=name,
        model=run["model"]["name"],
        benchmark=run["benchmark"]["name"],
        method=run["benchmark"]["method"],
        setting=title,
        billions_of_parameters=run["model"]["billions_of_parameters"],
        training_cutoff=run["model"].get("training_cutoff"),
        artifacts={artifact.stage: artifact for artifact in artifacts},
        extra_outputs=tuple(artifact for artifact in artifacts if artifact.stage in block_stages),
        record=content,
    )


def by_setting(branches: Iterable[PastBranch]) -> dict[str, list[PastBranch]]:
    """The seeds of each setting of each model, in order."""
    seeds_by_name: dict[str, list[PastBranch]] = {}
    for branch in branches:
        seeds_by_name.setdefault(str(branch), []).append(branch)
    return {
        name: sorted(seeds, key=lambda branch: branch.seed) for name, seeds in seeds_by_name.items()
    }


def count_answered(metrics: pl.DataFrame, method: Method) -> tuple[int, int]:
    """How many prompts of a setting have an answer, and how many have none."""
    row = metrics.filter(metric=method.measure.main_metric).filter(pl.col("slice").is_null())
    n, failed = row.select("n", "n_failed").row(0)
    return int(n), int(failed)


def metrics(store: Store, content: Record) -> pl.DataFrame:
    """Every number of a run, from its results: one row per metric, setting and slice.

    Raises:
        DamagedFileError: the file is missing or damaged.
    """
    numbers = read_file(store, METRICS, content)
    return decode(numbers, ShardPlace("metrics", "", "metrics"), StoredFile(store.where(METRICS)))
