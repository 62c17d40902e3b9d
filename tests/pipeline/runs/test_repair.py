"""Repair: a file that is damaged again and again ends the run; many damaged once do not."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from factsweep.operators.errors import DamagedFileError
from factsweep.pipeline.runs.run import repair
from factsweep.pipeline.storage.artifact import Artifact, Recipe
from factsweep.pipeline.storage.store import Store
from tests.messages import naming


def test_repair_counts_each_file_by_itself(tmp_path: Path) -> None:
    artifact = Artifact(Store(str(tmp_path)), Recipe("matched", 1, {}, {}))
    plan: Any = SimpleNamespace(steps=[SimpleNamespace(artifact=artifact)])
    renewed = Counter[str]()

    def damage(shard: str) -> None:
        name = f"{artifact.folder}/matched/{shard}.parquet"
        artifact.store.put(name, b"cut")
        repair(plan, DamagedFileError(f"{name} is damaged.", name), renewed)
        assert not artifact.store.exists(name)

    for shard in ("P17", "P30", "P36", "P36", "P36"):
        damage(shard)
    with pytest.raises(DamagedFileError, match=naming("P36.parquet")):
        damage("P36")
