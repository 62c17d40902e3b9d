"""Past runs: what the folders of results say was measured, and where its artifacts lie."""

import json
from collections.abc import Iterator, Sequence
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
    trust_remote_code: bool
    artifacts: dict[str, Artifact]

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
    for name in names or _all(store):
        for branch in _of_run(store, name):
            found.setdefault(branch.metrics.folder, branch)
    if not found:
        raise InputError(f"{results} has no run with a run.json; run something first.")
    _refuse_two_of_one(list(found.values()))
    return list(found.values())


def _all(store: Store) -> list[str]:
    return [name for name in store.folders("") if store.exists(f"{name}/run.json")]


def recorded(store: Store, name: str) -> dict[str, Any]:
    """The run.json of a run.

    Raises:
        InputError: there is no such run.
    """
    try:
        found: dict[str, Any] = json.loads(store.get(f"{name}/run.json"))
    except FileNotFoundError as error:
        known = ", ".join(_all(store))
        raise InputError(f"{store.where()} has no run {name}; it has {known}.") from error
    return found


def _of_run(store: Store, name: str) -> Iterator[PastBranch]:
    record = recorded(store, name)
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
            trust_remote_code=run["model"].get("trust_remote_code", False),
            artifacts={folder.partition("/")[0]: opened(artifacts, folder) for folder in folders},
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
