"""The wheel: what is in it, and that it runs in an empty folder without a checkout."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import polars as pl
import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("factsweep", "operators", "pipeline", "conf", "data_catalog")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: a build folder that is there would add to it."""
    checkout = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, checkout / name, ignore=ignored, symlinks=True)
    for name in FILES:
        shutil.copy(ROOT / name, checkout)
    pip("wheel", "--no-build-isolation", "--wheel-dir", str(checkout / "dist"), str(checkout))
    (path,) = (checkout / "dist").glob("factsweep-*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheel is installed in."""
    folder = tmp_path_factory.mktemp("installed")
    pip("install", "--target", str(folder), str(wheel))
    return folder


def pip(verb: str, *words: str) -> None:
    command = [sys.executable, "-m", "pip", "-q", verb, "--no-deps", "--no-index", *words]
    subprocess.run(command, check=True)


@pytest.fixture
def hers(tmp_path: Path, small_rows: pl.DataFrame, make_model: Callable[[str], Path]) -> Path:
    """The folder of a project of the user's: a model, a data set, and modules called as ours."""
    folder = tmp_path / "factsweep.d"
    for group in ("model", "benchmark", "data_catalog"):
        (folder / group).mkdir(parents=True)
    model = (
        f"defaults: [smollm2-135m, _self_]\nname: mine\nsource: path\nid: {make_model('mine')}\n"
    )
    (folder / "model/mine.yaml").write_text(model)
    benchmark = "defaults: [myriadlama-mini, _self_]\nname: mine\ndata: mine\n"
    (folder / "benchmark/mine.yaml").write_text(benchmark)
    shipped = (ROOT / "data_catalog/myriadlama-mini.yaml").read_text()
    entry = shipped.replace("name: myriadlama-mini", "name: mine").replace("mini/mine", "mine")
    (folder / "data_catalog/mine.yaml").write_text(entry.replace("mini/myriadlama-mini", "mine"))
    (folder / "data_catalog/mine").mkdir()
    small_rows.write_parquet(folder / "data_catalog/mine/rows.parquet")
    for name in ("pipeline", "conf", "tests"):  # names that her own project has, too
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('this is hers')\n")
    (tmp_path / "operators.py").write_text("raise ImportError('this is hers')\n")
    return tmp_path


def test_wheel_has_what_ships_and_nothing_else(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if ".dist-info" not in top} == {"factsweep"}
    files = {p.relative_to(ROOT) for f in ("conf", "data_catalog") for p in (ROOT / f).rglob("*.*")}
    shipped = {name.removeprefix("factsweep/") for name in names}
    missing = {str(path) for path in files if path.suffix in (".yaml", ".csv")} - shipped
    assert all(name.startswith("data_catalog/mini/") for name in missing)  # sources of mini sets
    assert not [
        name for name in names if name.startswith("factsweep/data") and name.endswith(".py")
    ]
    assert {"factsweep/py.typed", "factsweep/data_catalog/rates.csv"} < {*names}


@pytest.mark.slow
def test_wheel_runs_a_users_own_model_and_data_beside_modules_of_the_same_names(
    installed: Path, hers: Path
) -> None:
    def factsweep(*words: str) -> str:
        # -m: her folder is the first that is searched, in the workers of Ray, too
        script = [sys.executable, "-m", "factsweep.pipeline.cli", *words]
        environment = {**os.environ, "PYTHONPATH": str(installed)}
        environment.pop("FACTSWEEP_CONFIG_DIR", None)
        process = subprocess.run(
            script, cwd=hers, env=environment, capture_output=True, text=True, check=False
        )
        assert process.returncode == 0, process.stderr
        return process.stdout

    assert "commit" not in factsweep("--version")
    small = ["decoding.engine=fake", "decoding.samples.n_prompts=0", "metrics.n_rounds=20"]
    options = ["model=mine", "benchmark=mine", *small, "cluster.num_cpus=2"]
    assert "mine on mine" in factsweep("run", *options)
    assert (hers / "results/fake-mine-mine-4-template/index.html").is_file()
