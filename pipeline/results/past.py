"""Past runs: what was measured, by the folders of results, and where its artifacts are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Method
from factsweep.operators.wording import listed, suggestion
from factsweep.operators.wording.names import check_apart, check_run, folded
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import of_record
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results.record import ESTIMATE, NAME, pins, read
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import misfits
from factsweep.pipeline.storage.lookup import opened
from factsweep.pipeline.storage.sealed import RERUN
from factsweep.pipeline.storage.store import Store, below

Record = Mapping[str, Any]


@dataclass(frozen=True)
class PastBranch:
    """One setting of a past run, and its artifacts by stage; `further`: blocks of samples."""

    run: str
    model: str
    benchmark: str
    method: str
    setting: str
    billions_of_parameters: float | None
    training_cutoff: str | None
    artifacts: dict[str, Artifact]
    record: Mapping[str, Any]
    further: tuple[Artifact, ...] = ()

    @property
    def seed(self) -> int:
        """The seed of all that was drawn."""
        return int(self.record["run"]["seed"])

    @property
    def metrics(self) -> Artifact:
        """Its metrics."""
        return self.artifacts["metrics"]

    @property
    def how(self) -> Method:
        """How its benchmark is asked, measured and shown."""
        return METHODS[self.method]

    @property
    def facts(self) -> Facts:
        """The facts that it asked, read anew."""
        return facts_stage.load(self.artifacts["facts"])

    @property
    def answers(self) -> Artifact:
        """The answers to all its prompts, or the scores of their texts."""
        return self.artifacts[self.how.ask.ability.answers]

    @property
    def relations(self) -> list[str]:
        """The relations that it has matched answers of."""
        return self.artifacts["matched"].shards(self.how.measure.answers)

    def matched_answers(self, relation_id: str | None = None) -> pl.DataFrame:
        """The matched answers to its prompts, or to those of a relation."""
        matched, table = self.artifacts["matched"], self.how.measure.answers
        return matched.read_all(table) if relation_id is None else matched.read(table, relation_id)

    def matched(self, relation_id: str) -> dict[str, pl.DataFrame]:
        """The matched tables that there are of a relation, by name."""
        artifact = self.artifacts["matched"]
        return {
            table: artifact.read(table, relation_id)
            for table in self.how.measure.matched
            if relation_id in artifact.shards(table)
        }

    def __str__(self) -> str:
        """As in messages."""
        return f"{self.model}, {self.setting} on {self.benchmark}"


def branches(results: str, names: Sequence[str] = ()) -> list[PastBranch]:
    """The settings of the named runs, or of all, each once: runs may share artifacts.

    Raises:
        InputError: there are none.
    """
    found: dict[str, PastBranch] = {}
    for name in names or known(results):
        for branch in settings(name, record(results, name)):
            found.setdefault(branch.metrics.folder, branch)
    if not found:
        raise InputError(f"{results} has no run with a run.json; run something first.")
    return list(found.values())


def by_title(results: str, name: str) -> dict[str, PastBranch]:
    """The settings of a run that was asked all of its prompts, by title.

    Raises:
        InputError: there is no such run.
    """
    return {each.setting: each for each in branches(results, [name])}


def known(results: str, file: str = NAME) -> list[str]:
    """The names of the runs that there are, or that have another file; not those of nights."""
    store = Store(results)
    return [name for name in store.folders("") if file in store.names(name)]


def runs(results: str, name: str) -> list[str]:
    """The runs that a name stands for: the run itself, or those of a night, which are below it.

    Raises:
        InputError: there is no such run.
    """
    store = Store(results)
    below = [f"{name}/{each}" for each in store.folders(name)]
    found = [each for each in (name, *below) if NAME in store.names(each)]
    if not found:
        raise _unknown(results, name)
    return found


def estimated(results: str, name: str) -> list[str]:
    """Of the run of a name, or of those of a night, the ones that asked a part of their prompts."""
    store = Store(results)
    below = (f"{name}/{each}" for each in store.folders(name))
    return [each for each in (name, *below) if ESTIMATE in store.names(each)]


def record(results: str, name: str) -> Record:
    """What a run wrote down: its run.json.

    Raises:
        InputError: there is no such run.
        DamagedFileError: it is not what was written.
    """
    try:
        found = read(Store(below(results, name)))
    except FileNotFoundError as error:
        raise _unknown(results, name) from error
    if (written := found["run"]["name"]) != name:
        LOG.warning("%s/%s holds the results of the run %s.", results, name, written)
    return found


def is_done(results: str, name: str) -> bool:
    """Whether there is a run of that name, or one that estimated."""
    store = Store(below(results, name))
    return store.exists(NAME) or store.exists(ESTIMATE)


def run_of(results: str, name: str) -> Run:
    """A run that is done, or that estimated, as it was configured; its results lie in `results`.

    Raises:
        InputError: there is no such run.
        DamagedFileError: what it wrote down is not what was written.
    """
    check_run(name)
    store = Store(below(results, name))
    part = store.exists(ESTIMATE) and not store.exists(NAME)
    found = read(store, ESTIMATE) if part else record(results, name)
    places = {"results": results, "artifacts": found["run"]["artifacts"]}
    return replace(of_record(found["run"]), name=name, **places)


def check_free(results: str, name: str) -> None:
    """Refuse the name of a run that some file systems take for that of another."""
    store, parts = Store(results), name.split("/")
    for depth, part in enumerate(parts):
        there = store.folders("/".join(parts[:depth]))
        alike = [each for each in there if folded(each) == folded(part)]
        check_apart([*alike, part], f"the runs in {store.where()}:")


def _unknown(results: str, name: str) -> InputError:
    if estimated(results, name):
        return InputError(
            f"{name} in {results} has estimates from a part of the prompts, where a full run is "
            "needed; run it without budget=: no prompt is asked twice."
        )
    there = known(results)
    return InputError(
        f"{results} has no run {name}; it has {listed(there)}.{suggestion(name, there)}"
    )


def settings(name: str, content: Record) -> Iterator[PastBranch]:
    """The settings that a run measured, as its record says.

    Raises:
        InputError: an artifact of one is gone, or is not what the run was made of.
        DamagedFileError: a recipe or a manifest is not what was written.
    """
    store = Store(content["run"]["artifacts"])
    for title, folders in content["artifacts"].items():
        artifacts = {folder: opened(store, folder) for folder in folders}
        for each in artifacts.values():
            if not each.is_complete():
                raise InputError(
                    f"{store.where(each.folder)} of the run {name} is not complete; run it again."
                )
        for finding in misfits(artifacts, pins(content), {}):
            raise DamagedFileError(finding.sentence, finding.name)
        _check_inputs(name, artifacts)
        found = setting(name, content, title, artifacts.values())
        _check_names(found)
        yield found


def _check_inputs(name: str, artifacts: Mapping[str, Artifact]) -> None:
    """Refuse a run.json that lists artifacts of which one was made of another than is listed."""
    listed = {each.stage for each in artifacts.values()}
    for each in artifacts.values():
        for stage, fingerprint in each.recipe.inputs.items():
            if stage in listed and f"{stage}/{fingerprint}" not in artifacts:
                raise DamagedFileError(
                    f"{NAME} of the run {name} lists {each.folder}, which was made of other "
                    f"{stage} than it lists{RERUN}"
                )


def _check_names(branch: PastBranch) -> None:
    """Refuse a run.json that names another model, benchmark, setting or seed than was measured."""
    fields = branch.metrics.recipe.fields
    prompts = branch.artifacts["prompts"].recipe.fields
    title = " ".join(filter(None, (fields["setting"], fields["variant"])))
    for noun, shown, measured in (
        ("model", branch.model, fields["model"]),
        ("benchmark", branch.benchmark, fields["benchmark"]),
        ("setting", branch.setting, title),
        ("seed", branch.seed, fields["seed"]),
        ("method", branch.method, prompts["method"]),
    ):
        if shown != measured:
            raise DamagedFileError(
                f"{NAME} of the run {branch.run} says {noun} {shown}, where {measured} was "
                f"measured{RERUN}"
            )


def setting(name: str, content: Record, title: str, artifacts: Iterable[Artifact]) -> PastBranch:
    """One setting of a run, by its title."""
    run, found = content["run"], list(artifacts)
    further = METHODS[run["benchmark"]["method"]].ask.ability.further
    return PastBranch(
        run=name,
        model=run["model"]["name"],
        benchmark=run["benchmark"]["name"],
        method=run["benchmark"]["method"],
        setting=title,
        billions_of_parameters=run["model"]["billions_of_parameters"],
        training_cutoff=run["model"].get("training_cutoff"),
        artifacts={each.stage: each for each in found},
        further=tuple(each for each in found if each.stage in further),
        record=content,
    )


def by_setting(branches: Iterable[PastBranch]) -> dict[str, list[PastBranch]]:
    """The seeds of each setting of each model, in order."""
    found: dict[str, list[PastBranch]] = {}
    for branch in branches:
        found.setdefault(str(branch), []).append(branch)
    return {name: sorted(each, key=lambda one: one.seed) for name, each in found.items()}


def answered(metrics: pl.DataFrame, method: Method) -> tuple[int, int]:
    """How many prompts of a setting have an answer, and how many have none."""
    row = metrics.filter(metric=method.measure.main_metric).filter(pl.col("slice").is_null())
    n, failed = row.select("n", "n_failed").row(0)
    return int(n), int(failed)
