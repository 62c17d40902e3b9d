"""The image for machines without a GPU, built without a registry, runs a slice of the demo.

Its base is a Debian that debootstrap makes; buildah builds on it, in chroots, without a daemon:
apt-get install buildah debootstrap crun. It takes ten minutes and 20 GB of disk, so a variable asks
for it: FACTSWEEP_IMAGE=1 pytest tests/docker/test_image.py
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("buildah", "debootstrap")
PACKAGES = "python3,python3-venv,python3-dev,python-is-python3,ca-certificates"
# As of the slim images that docker/Dockerfile builds on.
LEFT_OUT = (
    *("var/cache/apt", "var/lib/apt/lists"),
    *("usr/share/doc", "usr/share/man", "usr/share/locale"),
)
PYTHON = "python3.11"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
MOST_GB = 4.0
SLICE = (
    "benchmark.relations=[P36]",
    "benchmark.pairs_per_relation=3",
    "sweep.prompts=[zero-shot]",
    "decoding=greedy",
)

Buildah = Callable[..., str]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on a disk, for many GB."""
    if not os.environ.get("FACTSWEEP_IMAGE"):
        pytest.skip("builds an image in ten minutes, where FACTSWEEP_IMAGE=1 asks for it")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin")
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(NEEDED)}: apt-get install {' '.join(NEEDED)} crun")
    made = Path(tempfile.mkdtemp(prefix="image-", dir="/var/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def buildah(folder: Path) -> Iterator[Buildah]:
    """Calls buildah, on a storage of its own."""
    store = (f"--root={folder}/store", f"--runroot={folder}/run", "--storage-driver=overlay")

    def called(*arguments: str) -> str:
        return run("buildah", *store, *arguments)

    yield called
    called("rm", "--all")
    called("rmi", "--all", "--force")
    called("umount", "--all")  # else the folder cannot be removed


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_image_for_cpus_is_below_4_gb_and_runs_the_demo(
    buildah: Buildah, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    volumes = base(buildah, folder / "debian")
    buildah(
        *("bud", "--isolation=chroot", "--build-arg=BASE=localhost/debian", "--target=cpu"),
        *(f"--volume={each}:{each}:ro" for each in volumes),
        *("--tag=factsweep", f"--file={ROOT}/docker/Dockerfile", str(ROOT)),
    )
    size, unit = buildah("images", "--format={{.Size}}", "localhost/factsweep").split()
    with capsys.disabled():
        sys.stdout.write(f"\nthe image for CPUs: {size} {unit}\n")
    assert unit == "GB"
    assert float(size) < MOST_GB
    container = buildah("from", "localhost/factsweep").strip()
    inside = ("run", "--isolation=chroot", container, "--")
    assert buildah(*inside, "id", "-u").strip() == "1000"
    said = buildah(*inside, "factsweep", "run", "sweep=demo", *SLICE)
    assert re.search(r"Acc@1 +\| +[.\d]", said)
    written = buildah(*inside, "find", f"/cache/bytecode/opt/venv/lib/{PYTHON}", "-name", "*.pyc")
    assert "/site-packages/vllm/" in written  # so that the next start need not compile it


def base(buildah: Buildah, folder: Path) -> list[str]:
    """A Debian with Python, in which pip looks where it looks here; what it needs is returned."""
    here = ("unshare", "--mount")  # what it mounts in the folder ends with it
    make = ("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(folder))
    run(*here, *make)
    shutil.copy(CERTIFICATES, folder / CERTIFICATES.lstrip("/"))
    for left in LEFT_OUT:
        shutil.rmtree(folder / left)
    said = run(sys.executable, "-m", "pip", "config", "list")
    known = dict(re.findall(r"^\S+\.((?:extra-)?index-url|find-links)='(.*)'$", said, re.MULTILINE))
    lines = [f"{name} = {value}" for name, value in known.items()]
    (folder / "etc/pip.conf").write_text("\n".join(["[global]", *lines, ""]))
    container = buildah("from", "scratch").strip()
    buildah("add", container, str(folder), "/")
    buildah("commit", container, "localhost/debian")
    return folders(known.values())


def folders(places: Iterable[str]) -> list[str]:
    """The folders among places where pip looks; of an index, with what it links to."""
    paths = [Path(each) for each in re.findall(r"(?<!\S)(?:file://)?(/\S+)", " ".join(places))]
    return [str(each.parent if each.name == "simple" else each) for each in paths]


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout
