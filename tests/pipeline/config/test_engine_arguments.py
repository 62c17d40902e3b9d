"""Arguments of the engine: passed through, checked by name, and part of a recipe."""

import pytest

from factsweep.operators.engines import ENGINES
from factsweep.operators.errors import InputError
from factsweep.pipeline.config.recipe import in_recipe
from factsweep.pipeline.config.settings import load
from tests.messages import naming


def test_argument_of_vllm_is_taken_by_its_name() -> None:
    model = load(["model.engine.max_num_seqs=512", "model.engine.kv_cache_dtype=fp8"]).model
    assert model.engine == {"max_num_seqs": 512, "kv_cache_dtype": "fp8"}


def test_model_with_arguments_is_a_key_of_its_own() -> None:
    one, other = (load([f"model.engine.max_num_seqs={n}"]).model for n in (1, 2))
    assert len({one, other}) == 2


def test_argument_is_part_of_a_recipe_unless_it_changes_no_answer() -> None:
    model = load(["model.engine.max_num_seqs=512", "model.engine.quantization=fp8"]).model
    assert in_recipe(model)["engine"] == {"quantization": "fp8"}
    assert in_recipe(load(["model.engine.max_num_seqs=512"]).model)["engine"] == {}


def test_argument_that_vllm_does_not_have_is_named() -> None:
    with pytest.raises(InputError, match=naming("model.engine.max_num_seq", "max_num_seqs?")):
        load(["model.engine.max_num_seq=512"])


def test_argument_that_another_field_sets_names_the_field() -> None:
    with pytest.raises(InputError, match=naming("max_model_len", "model.max_model_len")):
        load(["model.engine.max_model_len=512"])


def test_argument_of_an_engine_without_any_is_refused() -> None:
    given = ["benchmark=probelm-mini", "decoding.scorer=transformers"]
    with pytest.raises(InputError, match=naming("argument", "engine")):
        load([*given, "model.engine.max_num_seqs=512"])


def test_arguments_of_vllm_are_those_of_its_engine() -> None:
    known = ENGINES["vllm"].arguments()
    assert known is not None
    assert {"quantization", "max_num_batched_tokens", *ENGINES["vllm"].fields} <= known


def test_engines_that_span_gpus_cannot_share_one() -> None:
    with pytest.raises(InputError, match=naming("per_gpu=2", "4 GPUs")):
        load(["model.replicas.per_gpu=2", "model.tensor_parallel=4"])


@pytest.mark.parametrize("argument", ["hf_token=abc", "speculative_config={api_key: abc}"])
def test_engine_argument_that_is_a_secret_is_refused(argument: str) -> None:
    with pytest.raises(InputError, match=naming("secret", "name")):
        load([f"+model.engine.{argument}"])
