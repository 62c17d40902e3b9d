"""The test modules of what was changed since a commit: `make quick` runs them.

    python tests/changed.py [COMMIT]        # HEAD, unless another is named

A test module is one of them that was changed itself, or that imports what was changed, directly or
through one module between (of a metric: its own tests and those of the benchmark's table that has
it); through more where no nearer test is. What lies further away, `make test` finds.
"""

import ast
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path, PurePath

import grimp

ROOT = Path(__file__).parent.parent
CODE = ("factsweep", "operators", "pipeline")
BESIDE = {"conf": "tests/pipeline/config", "data_catalog": "tests/pipeline/inputs/test_catalog.py"}


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
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return found


def near(code: str, graph: grimp.ImportGraph, imports: Mapping[str, Collection[str]]) -> set[str]:
    """The tests that import a module, directly or through one between, else through the fewest."""
    before, reached, found = set[str](), {code}, set[str]()
    while not found and before != reached:
        before = reached
        reached = reached.union(*map(graph.find_modules_that_directly_import, reached))
        found = {test for test, names in imports.items() if not reached.isdisjoint(names)}
    return found


def chosen(paths: list[PurePath]) -> list[str]:
    """The test modules of these files."""
    graph = grimp.build_graph("factsweep")
    code = {module(p) for p in paths if p.suffix == ".py" and p.parts[0] in CODE} & graph.modules
    tests = {str(p) for p in paths if p.match("tests/**/test_*.py") and (ROOT / p).is_file()}
    tests |= {BESIDE[p.parts[0]] for p in paths if p.parts[0] in BESIDE}
    imports = {
        str(path.relative_to(ROOT)): imported(path.read_text())
        for path in (ROOT / "tests").rglob("test_*.py")
    }
    return sorted(tests.union(*(near(each, graph, imports) for each in code)))


if __name__ == "__main__":
    print(*chosen(changed(*sys.argv[1:] or ["HEAD"])))
