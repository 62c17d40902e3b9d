"""A user's own folder: its files stand beside those that ship, and before them."""

import shutil
from pathlib import Path

import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.cluster import order
from factsweep.pipeline.cluster.launchers import LAUNCHERS
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.compose import choices
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.studies import night
from tests.messages import naming

MODEL = folders.CONF / "model/smollm2-135m.yaml"


@pytest.fixture
def hers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder factsweep.d/ where she stands, with a model and a data set of her own."""
    monkeypatch.delenv(folders.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    own = tmp_path / folders.OWN
    for group in ("model", "benchmark", "data_catalog"):
        (own / group).mkdir(parents=True)
    (own / "model/mine.yaml").write_text(
        MODEL.read_text().replace("name: smollm2-135m", "name: mine")
    )
    benchmark = (folders.CONF / "benchmark/myriadlama-mini.yaml").read_text()
    (own / "benchmark/mine.yaml").write_text(benchmark.replace("myriadlama-mini", "mine"))
    entry = (folders.CATALOG / "myriadlama-mini.yaml").read_text()
    entry = entry.replace("name: myriadlama-mini", "name: mine").replace(
        "mini/myriadlama-mini", "rows"
    )
    (own / "data_catalog/mine.yaml").write_text(entry)
    shutil.copytree(folders.CATALOG / "mini/myriadlama-mini", own / "data_catalog/rows")
    return own


def test_own_folder_is_none_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert folders.own() is None


def test_own_files_stand_beside_those_that_ship(hers: Path) -> None:
    run = load(["model=mine", "benchmark=mine"])
    assert (run.model.name, run.benchmark.data) == ("mine", "mine")
    assert {"mine", "smollm2-135m"} <= set(choices("model"))
    assert {"mine", "kamel"} <= set(catalog.names())


def test_own_file_of_the_same_name_comes_first(hers: Path) -> None:
    (hers / "model/smollm2-135m.yaml").write_text((hers / "model/mine.yaml").read_text())
    assert load([]).model.name == "mine"


def test_own_file_may_extend_one_that_ships(hers: Path) -> None:
    (hers / "model/longer.yaml").write_text(
        "defaults: [smollm2-135m, _self_]\nname: longer\nmax_model_len: 300\n"
    )
    model = load(["model=longer"]).model
    assert (model.name, model.max_model_len, model.source) == ("longer", 300, "package")


def test_own_nightly_is_found_by_its_name(hers: Path) -> None:
    (hers / "nightly").mkdir()
    shipped = folders.CONF / "nightly/demo.yaml"
    (hers / "nightly/hers.yaml").write_text(shipped.read_text())
    assert night.load("hers") == night.load("demo")


def test_own_entry_is_read_where_the_folder_cannot_be_seen(
    hers: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = catalog.entry("mine")
    monkeypatch.chdir(tmp_path_factory.mktemp("worker"))
    assert catalog.read(entry).pairs.equals(catalog.read(catalog.entry("myriadlama-mini")).pairs)


def test_own_folder_that_is_named_comes_before_the_one_here(
    hers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other folder/model").mkdir(parents=True)
    (tmp_path / "other folder/model/there.yaml").write_text((hers / "model/mine.yaml").read_text())
    monkeypatch.setenv(folders.VARIABLE, "other folder")
    assert load(["model=there"]).model.name == "mine"
    assert "mine" not in choices("model")


def test_own_folder_that_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(folders.VARIABLE, "/nowhere")
    with pytest.raises(InputError, match=naming("--config-dir", "/nowhere")):
        load([])


def test_own_folder_with_an_unknown_group_is_refused(hers: Path) -> None:
    (hers / "models").mkdir()
    with pytest.raises(InputError, match=naming("models", "group")):
        load([])


def test_own_folder_goes_along_with_a_command_for_shared_nodes(hers: Path) -> None:
    assert order.command(["model=mine"]) == f"factsweep run --config-dir {hers} model=mine"


@pytest.mark.parametrize("launcher", ["ray", "kuberay"])
def test_launch_where_the_own_folder_cannot_be_seen_is_refused(hers: Path, launcher: str) -> None:
    given = [f"cluster={launcher}", "artifacts=s3://a/b", "results=s3://a/c"]
    with pytest.raises(InputError, match=naming("factsweep.d", "give")):
        LAUNCHERS[launcher].rendered(load(given), given)
