"""The wheels that a machine without a network lacks, in pieces that it takes one after the other.

    python benchmarks/wheels.py FOLDER --has NAMES.txt [--python 3.12] [--mib 60]

NAMES.txt is what `python3 -m pip list --format=freeze` prints there. FOLDER gets wheels-00,
wheels-01, …, of at most so many MiB; there, `cat wheels-* | tar x` puts them together.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

LOCKED = Path(__file__).parents[1] / "requirements/cuda.txt"
# Gigabytes of kernels and media that benchmarks/gpu.py does not use, and torch, which is there.
LEFT_OUT = re.compile(
    r"nvidia-|flashinfer|tilelang|tokenspeed|cuda-|nccl|torch|quack|humming|z3|pynvvideocodec"
)


def main() -> None:
    """Download the wheels, and cut them into pieces."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--has", type=Path, required=True, help="the packages of that machine")
    parser.add_argument("--python", default="3.12", help="of that machine")
    parser.add_argument("--mib", type=int, default=60, help="of a piece at most")
    args = parser.parse_args()
    wheels = args.folder / "wheels"
    download(list_missing(args.has.read_text()), wheels, args.python)
    split = f"tar c -C {wheels} . | split -d -b {args.mib}M - {args.folder}/wheels-"
    subprocess.run(["bash", "-o", "pipefail", "-ec", split], check=True)
    shutil.rmtree(wheels)
    for piece in sorted(args.folder.glob("wheels-*")):
        print(f"{piece} {piece.stat().st_size / 2**20:.1f} MiB")


def list_missing(present: str) -> list[str]:
    """The locked packages, NAME==VERSION, that a list of packages lacks in any version."""
    lines = LOCKED.read_text().splitlines()
    locked = [line.split()[0] for line in lines if re.match(r"\w", line)]
    names = set(map(normalize, present.split("\n")))
    return [
        package
        for package in locked
        if (name := normalize(package)) not in names and not LEFT_OUT.match(name)
    ]


def normalize(requirement: str) -> str:
    """The name of a package as pip compares it.

    >>> normalize("Ray_x.y==2.60.0")
    'ray-x-y'
    """
    name = re.split(r"[=@ ]", requirement.strip())[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def download(packages: list[str], folder: Path, python: str) -> None:
    """Download wheels for Linux on x86-64; what has none is pure Python, and built here."""
    pip = (sys.executable, "-m", "pip")
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in range(5, 40)]
    binary = ("--only-binary=:all:", f"--python-version={python}", *platforms, f"-d{folder}")
    wanted, sources = list(packages), list[str]()
    while True:
        command = [*pip, "download", "-q", "--no-deps", *binary, *wanted]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode == 0:
            break
        absent = re.search(r"No matching distribution found for (\S+)", done.stderr)
        if absent is None or absent[1] not in wanted:
            raise SystemExit(done.stderr)
        wanted.remove(absent[1])
        sources.append(absent[1])
    if sources:
        subprocess.run([*pip, "wheel", "-q", "--no-deps", f"-w{folder}", *sources], check=True)


if __name__ == "__main__":
    main()
