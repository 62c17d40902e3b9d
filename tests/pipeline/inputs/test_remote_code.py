"""Code of a model: what is not its own could change without its fingerprint, and is refused."""

import json
from dataclasses import replace
from pathlib import Path

import huggingface_hub.constants
import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs.models import resolve
from tests.messages import naming

TRUSTED = replace(load([]).model, trust_remote_code=True)
FOREIGN = "other/repo--modeling.Own"


@pytest.fixture
def model(tmp_path: Path) -> Model:
    (tmp_path / "config.json").write_text("{}")
    return replace(TRUSTED, source="path", id=str(tmp_path))


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "processor_config.json"])
@pytest.mark.parametrize(
    "auto_map",
    [
        {"AutoConfig": "own.Own", "AutoModelForCausalLM": FOREIGN},
        {"AutoTokenizer": [None, FOREIGN]},
        ["own.Own", FOREIGN],
    ],
)
def test_resolve_code_of_another_repository_is_refused(
    model: Model, name: str, auto_map: object
) -> None:
    (Path(model.id) / name).write_text(json.dumps({"auto_map": auto_map}))
    with pytest.raises(InputError, match=naming(name, "other/repo", FOREIGN)):
        resolve(model)


def test_resolve_code_that_a_part_of_the_configuration_names_is_refused(model: Model) -> None:
    part = {"text_config": {"auto_map": {"AutoConfig": FOREIGN}}}
    (Path(model.id) / "config.json").write_text(json.dumps(part))
    with pytest.raises(InputError, match=naming("other/repo")):
        resolve(model)


def test_resolve_code_of_its_own_is_taken_and_is_part_of_the_revision(model: Model) -> None:
    folder = Path(model.id)
    (folder / "config.json").write_text('{"auto_map": {"AutoConfig": "own.Own"}}')
    revisions = set()
    for code in ("one = 1", "one = 2"):
        (folder / "own.py").write_text(code)
        revisions.add(resolve(model).revision)
    assert len(revisions) == 2


def test_resolve_code_that_may_not_run_is_let_be(model: Model) -> None:
    (Path(model.id) / "config.json").write_text(json.dumps({"auto_map": {"AutoConfig": FOREIGN}}))
    assert resolve(replace(model, trust_remote_code=False)).revision


@pytest.mark.parametrize(("owner", "refused"), [("other/repo", True), ("nobody/nothing", False)])
def test_resolve_hub_only_code_of_the_same_repository_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: str, *, refused: bool
) -> None:
    commit, repository = "0123456789abcdef0123456789abcdef01234567", "models--nobody--nothing"
    folder = tmp_path / repository / "snapshots" / commit
    folder.mkdir(parents=True)
    (tmp_path / repository / "refs").mkdir()
    (tmp_path / repository / "refs" / "main").write_text(commit)
    auto_map = {"AutoConfig": f"{owner}--configuration.Own"}
    (folder / "config.json").write_text(json.dumps({"auto_map": auto_map}))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    hosted = replace(TRUSTED, source="hub", id="nobody/nothing", revision="main")
    if refused:
        with pytest.raises(InputError, match=naming("config.json", "other/repo")):
            resolve(hosted)
    else:
        assert resolve(hosted).revision == commit
