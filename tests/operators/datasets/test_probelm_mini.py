"""probelm-mini: what ships is what its source says, and it takes the whole way."""

import runpy
from fnmatch import fnmatch
from pathlib import Path

import polars as pl
import pytest
import yaml

from factsweep.operators.datasets.probelm import Groups, candidates, counts, groups_from_files
from factsweep.operators.metrics.probelm import probelm
from factsweep.operators.prompts.plausibility import PROMPT_TYPES, items

CATALOG = Path(__file__).parents[3] / "data_catalog"
FOLDER = CATALOG / "mini/probelm-mini"
FRAMES = ("2017-12", "2020-10", "2021-12", "2023-11")


def read() -> dict[str, str]:
    paths = [*FOLDER.glob("*.json"), FOLDER / "prompts.csv"]
    return {path.name: path.read_text("utf-8") for path in paths}


@pytest.fixture(scope="module")
def entry() -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load((CATALOG / "probelm-mini.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def probelm_mini() -> Groups:
    relations = yaml.safe_load((CATALOG / "probelm-mini.yaml").read_text())["relations"]
    return groups_from_files(read(), relations)


def test_mini_files_are_those_of_their_source() -> None:
    assert runpy.run_path(str(FOLDER / "build_files.py"))["files"]() == read()


def test_mini_entry_names_counts_files_and_checksum(
    probelm_mini: Groups, entry: dict[str, object]
) -> None:
    assert entry["counts"] == counts(probelm_mini)
    assert entry["checksum"] == runpy.run_path(str(FOLDER / "build_files.py"))["checksum"](FOLDER)
    source = entry["source"]
    assert isinstance(source, dict)
    assert {path.name for path in FOLDER.glob(source["files"])} == set(read())


def test_mini_has_two_frames_and_groups_of_eleven(probelm_mini: Groups) -> None:
    pairs = probelm_mini.facts.pairs
    assert pairs.height >= 40
    assert set(pairs["split"]) == {"2020-10", "2023-11"}
    assert set(candidates(probelm_mini.facts).group_by("pair_id").len()["len"]) == {11}
    assert probelm_mini.dropped.is_empty()


def test_mini_right_rankings_score_one_and_reversed_ones_nothing(probelm_mini: Groups) -> None:
    ranked = candidates(probelm_mini.facts)
    texts = [items(probelm_mini.facts, each, seed=0) for each in PROMPT_TYPES]
    rows = pl.concat(texts).join(ranked, on="candidate_id")
    assert rows.height == 3 * ranked.height
    for sign, accuracy in ((-1, 1.0), (1, 0.0)):
        scores = rows.select("setting", "candidate_id", logprob=sign * pl.col("rank"), n_tokens=1)
        table = probelm(scores, ranked, seed=0, n_rounds=2)
        found = table.filter(pl.col("metric") == "accuracy")
        assert found["value"].unique().to_list() == [accuracy]
        assert found["slice"].n_unique() == 1 + 2 + 7  # all, the frames, the relations


@pytest.mark.parametrize("frame", FRAMES)
def test_authors_entry_takes_the_files_of_its_frame_alone(frame: str) -> None:
    found = yaml.safe_load((CATALOG / f"probelm-{frame}.yaml").read_text())
    assert len(found["relations"]) == len(set(found["relations"].values())) == 71
    names = {each: f"{each[5:]}{each[:4]}.json" for each in FRAMES}
    taken = [each for each, name in names.items() if fnmatch(name, found["source"]["files"])]
    assert taken == [frame]
    assert fnmatch("prompts.csv", found["source"]["files"])


@pytest.mark.parametrize("frame", ["2020-10", "2023-11"])
def test_authors_entry_counts_what_is_in_the_files(shared_data: Path, frame: str) -> None:
    found = yaml.safe_load((CATALOG / f"probelm-{frame}.yaml").read_text())
    paths = sorted((shared_data / "probelm").glob(found["source"]["files"]))
    files = {path.name: path.read_text("utf-8") for path in paths}
    assert counts(groups_from_files(files, found["relations"])) == found["counts"]
