"""Past runs: what the folders of results say was measured, and where its artifacts lie."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operators.errors import InputError
from pipeline.artifact import Artifact, opened
from pipeline.store import Store


@dataclass(frozen=True)
class PastBranch:
    """One setting of a past run, and its artifacts by stage."""

    run: str
    model: str
    benchmark: str
    method: str
    setting: str
    billions_of_parameters: float
    training_cutoff: str | None
    artifacts: dict[str, Artifact]
    record: Mapping[str, Any]

    @property
    def metrics(self) -> Artifact:
        """Its metrics."""
        return self.artifacts["metrics"]

    def __str__(self) -> str:
        """As it stands in messages."""
        return f"{self.model}, {self.setting} on {self.benchmark}"


def branches(results: str, names: Sequence[str] = ()) -> list[PastBranch]:
    """The settings of the named runs, or of all, each once: runs may share artifacts.

    Raises:
        InputError: there are none, or two runs measured the same in different ways.
    """
    store = Store(results)
    found: dict[str, PastBranch] = {}
    for name in names or runs(results):
        for branch in _of_run(store, name):
            found.setdefault(branch.metrics.folder, branch)
    if not found:
        raise InputError(f"{results} has no run with a run.json; run something first.")
    _refuse_two_of_one(list(found.values()))
    return list(found.values())


def runs(results: str) -> list[str]:
    """The names of the runs that there are."""
    store = Store(results)
    return [name for name in store.folders("") if store.exists(f"{name}/run.json")]


def _of_run(store: Store, name: str) -> Iterator[PastBranch]:
    try:
        record: dict[str, Any] = json.loads(store.get(f"{name}/run.json"))
    except FileNotFoundError as error:
        known = ", ".join(runs(store.root))
        raise InputError(f"{store.where()} has no run {name}; it has {known}.") from error
    yield from recorded(name, record)


def recorded(name: str, record: Mapping[str, Any]) -> Iterator[PastBranch]:
    """The settings that a run's record (run.json) says were measured.

    Raises:
        InputError: an artifact of one is gone.
    """
    run = record["run"]
    artifacts = Store(run["artifacts"])
    for setting, folders in record["artifacts"].items():
        yield PastBranch(
            run=name,
            model=run["model"]["name"],
            benchmark=run["benchmark"]["name"],
            method=run["benchmark"]["method"],
            setting=setting,
            billions_of_parameters=run["model"]["billions_of_parameters"],
            training_cutoff=run["model"].get("training_cutoff"),
            artifacts={folder.partition("/")[0]: opened(artifacts, folder) for folder in folders},
            record=record,
        )


def _refuse_two_of_one(found: Sequence[PastBranch]) -> None:
    seen: dict[str, PastBranch] = {}
    for branch in found:
        other = seen.setdefault(str(branch), branch)
        if other is not branch:
            raise InputError(
                f"the runs {other.run} and {branch.run} both measured {branch}, on different "
                "facts, prompts or samples; name the runs to report, without one of the two."
            )
