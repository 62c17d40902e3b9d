"""How a sweep gets to where it runs: one module per kind of cluster.

Each has `rendered`, which says what would be handed over (a job, a script, a manifest) and does
nothing, and `submitted`, which hands it over. What runs there is `factsweep run`, or another
verb, with the same overrides.
"""

from collections.abc import Mapping
from types import ModuleType

from factsweep.pipeline.launchers import kuberay, ray_job, slurm

LAUNCHERS: Mapping[str, ModuleType] = {"ray": ray_job, "slurm": slurm, "kuberay": kuberay}
