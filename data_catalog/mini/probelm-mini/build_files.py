"""Write the files of probelm-mini, in the layout of PRobELM's authors, from groups.yaml beside it.

Edit groups.yaml, run this, and put the checksum that it prints into data_catalog/probelm-mini.yaml.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from factsweep.operators.datasets.probelm import (
    PROMPTS,
    ROWS,
    Prompt,
    file_of_prompts,
    file_of_rows,
)
from factsweep.pipeline.inputs import catalog

HERE = Path(__file__).parent
N_ALTERNATIVES = 10


def files() -> dict[str, str]:
    """The set's files: path → content."""
    relations = yaml.safe_load((HERE / "groups.yaml").read_text())
    groups = defaultdict(list)
    for relation in relations.values():
        for frame, pools in relation["groups"].items():
            groups[frame] += _groups(relation, pools)
    fields = ("label", *Prompt._fields[1:])
    prompts = (Prompt(*(each[name] for name in fields)) for each in relations.values())
    content = {PROMPTS: file_of_prompts(prompts)}
    for frame, mine in groups.items():
        rows = [{"id": i, **row} for i, group in enumerate(mine) for row in group]
        content[f"{frame}.json"] = file_of_rows(pl.DataFrame(rows, ROWS))
    return content


def _groups(
    relation: dict[str, Any], pools: dict[str, dict[str, str]]
) -> Iterator[list[dict[str, Any]]]:
    asked = relation["asked"]
    other = "subject" if asked == "object" else "object"
    for pool, facts in pools.items():
        for known, answer in facts.items():
            true = {answer, *relation.get("also", {}).get(known, [])}
            false = (name for name in relation["pools"][pool] if name not in true)
            names = [answer, *islice(false, N_ALTERNATIVES)]
            yield [
                {
                    asked: name,
                    other: known,
                    "relation": relation["label"],
                    "label": int(rank == 1),
                    "rank": rank,
                }
                for rank, name in enumerate(names, start=1)
            ]


def checksum(folder: Path) -> str:
    """The SHA-256 of the data files, as the catalog has it."""
    return catalog.checksum([*folder.glob("*.json"), folder / PROMPTS])


if __name__ == "__main__":
    for name, content in files().items():
        (HERE / name).write_text(content, encoding="utf-8")
    sys.stdout.write(f"{checksum(HERE)}\n")
