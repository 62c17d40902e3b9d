"""The test modules of what was changed since a commit: `make quick` runs them.

    python tests/changed.py [COMMIT]        # HEAD, unless another is named

A test module is one of them that was changed itself, or that imports what was changed, directly or
through one module between (of a metric: its own tests and those of the benchmark's table that has
it). What lies further away, `make test` finds.
"""

import re
import subprocess
import sys
from pathlib import Path, PurePath

import grimp

ROOT = Path(__file__).parent.parent
CODE = ("factsweep", "operators", "pipeline")
BESIDE = {"conf": "tests/pipeline/config", "data_catalog": "tests/pipeline/inputs/test_catalog.py"}
IMPORT = re.compile(
    r"^ *from (factsweep[\w.]*) import \(?([\w, \n]*)|^ *import (factsweep[\w.]*)", re.M
)


def changed(commit: str) -> list[PurePath]:
    """What git says differs from a commit, and what it does not know yet."""
    found: list[PurePath] = []
    for words in (["diff", "--name-only", commit], ["ls-files", "--others", "--exclude-standard"]):
        said = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
        found += map(PurePath, said.stdout.splitlines())
    return found


def module(path: PurePath) -> str:
    """The name by which the code in a file is imported."""
    inside = path.with_suffix("").parts
    name = ".".join(inside if inside[0] == "factsweep" else ("factsweep", *inside))
    return name.removesuffix(".__init__")


def imported(text: str) -> set[str]:
    """The modules that a test imports; a name that is imported from a package may be one."""
    found: set[str] = set()
    for package, names, whole in IMPORT.findall(text):
        found |= {whole or package, *(f"{package}.{n.strip()}" for n in names.split(","))}
    return found


def chosen(paths: list[PurePath]) -> list[str]:
    """The test modules of these files."""
    graph = grimp.build_graph("factsweep")
    code = {module(p) for p in paths if p.suffix == ".py" and p.parts[0] in CODE} & graph.modules
    near = code.union(*(graph.find_modules_that_directly_import(each) for each in code))
    tests = {str(p) for p in paths if p.match("tests/**/test_*.py") and (ROOT / p).is_file()}
    tests |= {BESIDE[p.parts[0]] for p in paths if p.parts[0] in BESIDE}
    for path in (ROOT / "tests").rglob("test_*.py"):
        if near & imported(path.read_text()):
            tests.add(str(path.relative_to(ROOT)))
    return sorted(tests)


if __name__ == "__main__":
    print(*chosen(changed(*sys.argv[1:] or ["HEAD"])))
