"""The kinds of cluster that a run can be submitted to, by name."""

from collections.abc import Mapping
from types import ModuleType

from factsweep.pipeline.cluster import kuberay, ray_job, slurm

LAUNCHERS: Mapping[str, ModuleType] = {"ray": ray_job, "slurm": slurm, "kuberay": kuberay}
