"""Adapters: what goes beside a model is read before anything is loaded, and else refused."""

import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import models

TINY = runpy.run_path(str(Path(__file__).parents[2] / "tiny_models.py"))


def test_adapter_is_part_of_which_weights_they_are_and_a_wrong_one_is_refused(
    tmp_path: Path,
) -> None:
    base = TINY["save"]("llama", tmp_path / "base")
    adapter = TINY["save_adapter"](base, tmp_path / "tuned")
    other = TINY["save_adapter"](base, tmp_path / "other", seed=1)
    plain = load([f"model={base}"]).model
    model = replace(plain, adapter=str(adapter))
    assert load([f"model={base}", f"model.adapter={adapter}"]).model.name == "base+tuned"
    contents = [
        models.resolve(item).content for item in (plain, model, replace(plain, adapter=str(other)))
    ]
    assert contents[0] == {}
    assert len({item["adapter"] for item in contents[1:]}) == 2

    said = json.loads((adapter / "adapter_config.json").read_text())
    weights = (adapter / "adapter_model.safetensors").read_bytes()
    neox = load([f"model={TINY['save']('gpt-neox', tmp_path / 'neox')}"]).model
    wide = load([f"model={TINY['save']('llama-16', tmp_path / 'wide')}"]).model
    cases = {
        "has no such module": (said, weights, neox),
        "has it as": (said, weights, wide),
        "peft_type=IA3": (said | {"peft_type": "IA3"}, weights, plain),
        "use_dora=True": (said | {"use_dora": True}, weights, plain),
        "modules_to_save=['lm_head']": (said | {"modules_to_save": ["lm_head"]}, weights, plain),
        "adapter_config.json cannot be read": (None, weights, plain),
        "has no adapter_model.safetensors": (said, None, plain),
        "is damaged": (said, weights[:100], plain),
    }
    missed = []
    for number, (expected, (config, content, on)) in enumerate(cases.items()):
        folder = tmp_path / f"case-{number}"
        folder.mkdir()
        text = "{" if config is None else json.dumps(config)
        (folder / "adapter_config.json").write_text(text)
        if content is not None:
            (folder / "adapter_model.safetensors").write_bytes(content)
        with pytest.raises(InputError) as refused:
            models.resolve(replace(on, adapter=str(folder)))
        if not all(item in str(refused.value) for item in (expected, str(folder))):
            missed.append((expected, str(refused.value)))
    assert not missed


@pytest.mark.parametrize("benchmark", ["distractors-mini", "probelm-mini"])
def test_adapter_is_refused_where_another_engine_is_asked(benchmark: str, tmp_path: Path) -> None:
    base = TINY["save"]("llama", tmp_path / "base")
    adapter = TINY["save_adapter"](base, tmp_path / "tuned")
    with pytest.raises(InputError, match=r"model.adapter=.* is loaded by vLLM, and transformers"):
        load(
            [
                f"model={base}",
                f"model.adapter={adapter}",
                f"benchmark={benchmark}",
                "decoding.scorer=transformers",
            ]
        )
