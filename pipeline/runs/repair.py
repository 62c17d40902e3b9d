"""repair: set aside what is damaged of a run, so that only that is computed anew."""

from collections import Counter
from collections.abc import Mapping

from factsweep.operators.errors import DamagedFileError
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage import integrity
from factsweep.pipeline.storage.integrity import Finding
from factsweep.pipeline.storage.manifest import Pin

_MOST = 3  # times that a file is set aside in a run; one that is damaged again has another cause


def settle(plan: Plan, recorded: Mapping[str, Pin], renewed: Counter[str]) -> bool:
    """Set aside all that listings and manifests tell; whether nothing is left to compute.

    `recorded` are the pins of the run's earlier results. `renewed` counts what was set aside in
    this run, and is added to.

    Raises:
        DamagedFileError: something is damaged again and again.
    """
    artifacts = {step.artifact.folder: step.artifact for step in plan.steps}
    for found in plan.store.each(lambda each: list(integrity.listed(each)), artifacts.values()):
        for finding in found:
            _set_aside(finding, renewed)
    for finding in integrity.misfits(artifacts, recorded, renewed):
        _set_aside(finding, renewed)
    integrity.note_lost(artifacts, recorded)
    return plan.is_complete()


def repair(plan: Plan, damage: DamagedFileError, renewed: Counter[str]) -> None:
    """Set aside what turned out to be damaged when it was read.

    Raises:
        DamagedFileError: it is of no artifact of this plan, or was damaged again and again.
    """
    for step in plan.steps:
        if damage.name is not None and f"{damage.name}/".startswith(f"{step.artifact.folder}/"):
            _set_aside(Finding.of(step.artifact, damage), renewed)
            return
    raise damage


def _set_aside(finding: Finding, renewed: Counter[str]) -> None:
    artifact = finding.artifact
    name = finding.name or artifact.folder
    renewed[name] += 1
    if renewed[name] > _MOST:
        raise DamagedFileError(finding.sentence, finding.name)
    aside = finding.set_aside()
    LOG.warning("%s Set aside as %s.", finding.sentence, artifact.store.where(aside))
    if name == f"{artifact.folder}/recipe.json":
        artifact.begin()
