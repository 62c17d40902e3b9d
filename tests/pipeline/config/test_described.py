"""Described: what is read of a model that has no file in conf/model/."""

import json
import re
import runpy
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file

from factsweep.operators.errors import InputError
from factsweep.pipeline.config import described
from factsweep.pipeline.config.described import Need, check_shared, tensor_parallel
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.machine import processor
from factsweep.pipeline.stages.question import room
from tests.messages import naming

TINY = runpy.run_path(str(Path(__file__).parents[2] / "tiny_models.py"))
Make = Callable[..., Path]
# What is otherwise read of a model.
READ = ("model.architecture=decoder", "model.max_model_len=99", "model.billions_of_parameters=9")


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    def made(family: str, name: str | None = None, **more: Any) -> Path:
        folder: Path = TINY["save"](family, tmp_path_factory.mktemp("m") / (name or family), **more)
        return folder

    return made


@pytest.mark.parametrize(
    ("family", "architecture", "max_model_len"),
    [
        ("gpt-neox", "decoder", 4096),
        ("llama", "decoder", 4096),
        ("qwen", "decoder", 4096),
        ("bert", "encoder", 512),
        *((wrapper, "decoder", 2048) for wrapper in ("gemma3", "mistral3", "qwen3vl", "qwen3_5")),
    ],
)
def test_folder_of_a_model_tells_what_it_is(
    make: Make, family: str, architecture: str, max_model_len: int
) -> None:
    folder = make(family)
    model = load([f"model={folder}"]).model
    assert (model.name, model.source, model.id) == (family, "path", str(folder))
    assert (model.architecture, model.max_model_len) == (architecture, max_model_len)
    assert 0 < model.billions_of_parameters < 0.001
    assert (model.tensor_parallel, model.instruction_tuned) == (1, False)


def test_wrapper_of_images_is_refused_where_vllm_cannot_import_it(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one of text alone that vLLM has in the same module."""
    wrapper, text, beside = map(make, ("gemma3", "qwen", "qwen"))
    config = json.loads((beside / "config.json").read_text())
    (beside / "config.json").write_text(json.dumps({**config, "architectures": ["Qwen3_5For…"]}))
    models = [load([f"model={each}", *READ]).model for each in (text, wrapper, beside)]
    for there in (None, "torchvision"):
        monkeypatch.setattr(described, "find_spec", lambda _, there=there: there)
        described.check_wrapper(models[0])
        for model in models[1:]:
            lacks = naming(model.id, "without torchvision")
            with nullcontext() if there else pytest.raises(InputError, match=lacks):
                described.check_wrapper(model)


def test_hub_model_in_the_cache_is_read_without_a_network(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    commit, kept = "a" * 40, tmp_path / "models--org--tiny"
    shutil.copytree(make("llama"), kept / "snapshots" / commit)
    (kept / "refs").mkdir()
    (kept / "refs/main").write_text(commit)
    model = load(["model=org/tiny"]).model
    assert 0 < model.billions_of_parameters < 0.001


def test_hub_that_cannot_be_reached_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def unreachable(_api: object, name: str, **_: object) -> None:
        asked.append(name)
        raise httpx2.ConnectError("Name or service not known")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", unreachable)
    with pytest.raises(InputError, match=naming("model=nosuch/thing", "network", "HF_TOKEN")):
        load(["model=nosuch/thing"])
    assert asked == ["nosuch/thing"]


def test_encoder_is_asked_with_masks(make: Make) -> None:
    run = load([f"model={make('bert')}"])
    assert [setting.name for setting in run.settings] == ["masked"]
    assert run.benchmark.method == "belief-masked"


def test_folder_beside_us_is_a_model(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make("llama", "mine")
    monkeypatch.chdir(folder.parent)
    assert {load([f"model={name}"]).model.id for name in ("mine", "./mine")} == {str(folder)}


def test_folder_with_a_space_and_a_quote_is_read(make: Make) -> None:
    folder = make("llama", "it's mine")
    assert load([f"model={folder}"]).model.name == "it-s-mine"


def test_file_in_conf_wins_over_a_folder(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make("llama", "gpt2").parent)
    assert load(["model=gpt2"]).model.source == "hub"


def test_field_that_is_given_is_not_read(make: Make) -> None:
    given = ["model.name=mine", "model.max_model_len=99", "model.billions_of_parameters=9"]
    model = load([f"model={make('llama')}", *given]).model
    assert (model.name, model.max_model_len, model.billions_of_parameters) == ("mine", 99, 9)


def test_thinking_is_told_to_the_template_and_refused_where_nothing_is_thought(make: Make) -> None:
    model = f"model={make('llama', 'm-it', chat_template='{{ messages }}')}"
    chat = "model.chat_template=true"
    for thinking, told in {
        "on": {"enable_thinking": True},
        "off": {"enable_thinking": False},
        "false": {"enable_thinking": False},
        "null": None,
    }.items():
        found = load([model, chat, f"model.thinking={thinking}"])
        assert found.model.template_told == told, thinking
        # A prompt has to leave room for the thought, and for what closes it.
        left = found.model.max_model_len - found.decoding.max_tokens - room(found)
        assert left == (512 + 16 if thinking == "on" else 0), thinking
    for overrides, expected in {
        ("model.thinking=on",): "model.chat_template=true",
        (chat, "model.thinking=on", "benchmark=probelm-mini"): "reads probabilities",
        (chat, "model.thinking=maybe"): "model.thinking='maybe'",
        (chat, "model.thinking=on", "model.reasoning_parser=qwen"): "Did you mean qwen3?",
    }.items():
        with pytest.raises(InputError, match=re.escape(expected)):
            load([model, *overrides])


@pytest.mark.parametrize(
    ("name", "template", "tuned"),
    [
        ("mine", "{{ messages }}", None),
        ("mine-Instruct", "{{ messages }}", True),
        ("mine-Base", "{{ messages }}", False),
        ("raw", None, False),
    ],
)
def test_chat_template_without_a_telling_name_leaves_instruction_tuned_unknown(
    make: Make, name: str, template: str | None, tuned: bool | None
) -> None:
    model = load([f"model={make('llama', name, chat_template=template)}"]).model
    assert (model.instruction_tuned, model.chat_template) == (tuned, False)


def test_context_of_a_cpu_is_what_its_cache_holds(make: Make) -> None:
    folder = make("llama")
    config = json.loads((folder / "config.json").read_text())
    config |= {"num_hidden_layers": 64, "num_key_value_heads": 32, "head_dim": 128}
    (folder / "config.json").write_text(json.dumps(config))
    lengths = {
        device: load([f"model={folder}", f"cluster.device={device}"]).model.max_model_len
        for device in ("cpu", "cuda")
    }
    # 64 layers × 2 × 32 heads × 128 × 4 bytes = 2 MiB per token; 2 GiB hold 1,024 of them.
    assert lengths == {"cpu": 1024, "cuda": 4096}


@pytest.mark.parametrize(
    ("family", "field"), [("bert-without-head", "architecture"), ("t5", "architecture")]
)
def test_model_that_does_neither_names_the_field_to_give(
    make: Make, family: str, field: str
) -> None:
    with pytest.raises(InputError, match=naming(f"model.{field}=")):
        load([f"model={make(family)}"])


def test_model_without_safetensors_names_the_field_to_give(make: Make) -> None:
    folder = make("llama")
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=naming("no weights", "model.billions_of_parameters")):
        load([f"model={folder}"])
    (folder / "consolidated.safetensors").touch()
    with pytest.raises(InputError, match=naming("consolidated.safetensors", "save_pretrained")):
        load([f"model={folder}"])


def test_model_with_a_damaged_config_is_told_of_the_file_alone(make: Make) -> None:
    folder = make("llama")
    (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match=naming("config.json", "check the file")) as refusal:
        load([f"model={folder}"])
    assert "HF_TOKEN" not in str(refusal.value)


def test_model_without_a_length_names_the_field_to_give(make: Make) -> None:
    with pytest.raises(InputError, match=naming("model.max_model_len", "give")):
        load([f"model={make('bloom')}"])


def test_config_that_is_damaged_says_so(make: Make) -> None:
    folder = make("llama")
    (folder / "config.json").write_text('{"model_type": "llama", "hidden_size": "wide"}')
    with pytest.raises(InputError, match=naming("config.json", "model=", "hidden_size")):
        load([f"model={folder}"])


def test_code_of_the_model_is_not_run_unasked(make: Make) -> None:
    folder = make("llama")
    code = {"model_type": "odd", "auto_map": {"AutoConfig": "odd.OddConfig"}}
    (folder / "config.json").write_text(json.dumps(code))
    (folder / "odd.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(InputError, match=naming("model.trust_remote_code=true")):
        load([f"model={folder}"])


def test_folder_without_config_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=naming("config.json", f"model={tmp_path}")):
        load([f"model={tmp_path}"])


@pytest.mark.parametrize("name", ["./nosuch", "../nosuch/thing", "/nosuch", "~/nosuch"])
def test_folder_that_is_not_there_is_no_id_of_the_hub(name: str) -> None:
    with pytest.raises(InputError, match=naming(f"model={name}", "folder")):
        load([f"model={name}"])


def test_name_that_is_nothing_says_what_it_could_be() -> None:
    with pytest.raises(InputError, match=naming("model 'lama3-8b'", "llama3-8b?")):
        load(["model=lama3-8b"])


def test_quantised_weights_have_the_parameters_of_those_that_they_were(
    make: Make, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """Parameters are counted, however many of them a stored number holds; none are loaded here."""
    whole = load([f"model={make('llama')}"]).model.billions_of_parameters
    groups = {"group_0": {"weights": {"num_bits": 4}}}
    fp8, int4_of_torchao = {"dtype": "fp8_e4m3"}, "Int8DynamicActivationInt4WeightConfig"
    cases: list[tuple[dict[str, Any], torch.dtype, int, str]] = [
        ({"quant_method": "awq", "bits": 4}, torch.int32, 8, "awq, 4 bits"),
        ({"quant_method": "gptq", "bits": 2}, torch.int32, 16, "gptq, 2 bits"),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            *(torch.uint8, 2, "bitsandbytes, 4 bits"),
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": groups},
            *(torch.int32, 8, "compressed-tensors, 4 bits"),
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {}},
            *(torch.int8, 1, "compressed-tensors"),
        ),
        ({"quant_method": "fp8"}, torch.float8_e4m3fn, 1, "fp8, 8 bits"),
        (
            {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}},
            *(torch.uint8, 2, "modelopt, 4 bits"),
        ),
        (
            {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "uint4"}}},
            *(torch.int32, 8, "quark, 4 bits"),
        ),
        (
            {"quant_method": "quark", "global_quant_config": {"weight": [fp8, {"dtype": "int4"}]}},
            *(torch.int32, 8, "quark, 4 bits"),
        ),
        (
            {"quant_method": "torchao", "quant_type": {"default": {"_type": int4_of_torchao}}},
            *(torch.uint8, 2, "torchao, 4 bits"),
        ),
    ]
    assert described.scheme(load([f"model={make('llama')}"]).model) is None
    for number, (said, kind, held, scheme) in enumerate(cases):
        folder = shutil.copytree(make("llama"), tmp_path / str(number))
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "quantization_config": said}))
        stored = load_file(folder / "model.safetensors")
        for name, weight in stored.items():
            if "proj" in name:
                stored[name] = torch.zeros(weight.numel() // held, dtype=kind)
        save_file(stored, folder / "model.safetensors", {"format": "pt"})
        with subtests.test(**said):
            run = load([f"model={folder}"])
            assert run.model.billions_of_parameters == whole
            assert described.scheme(run.model) == scheme
            if said.get("quant_method") == "bitsandbytes":  # which is not installed here
                with pytest.raises(InputError, match=naming(folder, "pip install bitsandbytes")):
                    described.check(run.model, "cpu", "transformers")


@pytest.mark.parametrize(
    ("said", "held", "scheme"),
    [
        ({"quant_algo": "FP8", "kv_cache_quant_algo": None}, 1, "modelopt, 8 bits"),
        ({"quant_algo": "W4A16_AWQ", "group_size": 128}, 2, "modelopt, 4 bits"),
        (
            {
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {"a": {"quant_algo": "FP8"}, "b": {"quant_algo": "NVFP4"}},
            },
            *(2, "modelopt, 4 bits"),
        ),
    ],
)
def test_quantisation_that_modelopt_wrote_into_a_file_of_its_own_is_known(
    said: dict[str, Any], held: int, scheme: str, make: Make, tmp_path: Path
) -> None:
    """Bits, scheme, and with them the memory that `plan` and `doctor` count on."""
    whole = load([f"model={make('llama')}"]).model
    folder = shutil.copytree(make("llama"), tmp_path / "quantised")
    apart = {"producer": {"name": "modelopt", "version": "0.29.0"}, "quantization": said}
    (folder / "hf_quant_config.json").write_text(json.dumps(apart))
    kind = torch.uint8 if held > 1 else torch.float8_e4m3fn
    stored = load_file(folder / "model.safetensors")
    for name, weight in stored.items():
        if "proj" in name:
            stored[name] = torch.zeros(weight.numel() // held, dtype=kind)
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    model = load([f"model={folder}"]).model
    assert described.scheme(model) == scheme
    assert model.billions_of_parameters == whole.billions_of_parameters
    assert described.weights_gb(model) == described.weights_gb(whole) * int(scheme[10]) / 16


def test_quantised_weights_that_the_device_has_no_kernels_for_are_refused(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """As vLLM was seen to run or fail with tiny models on CPUs; nothing is loaded here."""
    avx2, avx512 = frozenset({"sse2", "avx2"}), frozenset({"sse2", "avx2", "avx512f"})
    amx = avx512 | {"amx_tile"}
    int8 = _compressed("int-quantized", {"strategy": "token"}, num_bits=8, type="int")
    int4 = _compressed("pack-quantized", num_bits=4, type="int")
    float8 = _compressed("float-quantized", num_bits=8, type="float", strategy="tensor")
    dynamic, weights_alone = (
        _compressed("float-quantized", num_bits=8, type="float", strategy="channel", inputs=inputs)
        for inputs in ({"strategy": "token"}, None)
    )
    nvfp4 = _compressed("nvfp4-pack-quantized", num_bits=4, type="float")
    awq, gptq = {"quant_method": "awq", "bits": 4}, {"quant_method": "gptq", "bits": 8}
    ordered = {"quant_method": "gptq", "bits": 4, "desc_act": True, "group_size": 128}
    cases: list[tuple[dict[str, Any], str, Any, str, str | None]] = [
        (int8, "float32", avx2, "cpu", "VNNI"),
        (int8, "float32", avx512, "cpu", "VNNI"),
        (int8, "float32", avx2 | {"avx_vnni"}, "cpu", None),
        (int8, "float32", avx512 | {"avx512_vnni"}, "cpu", None),
        (int8, "float32", frozenset({"asimd"}), "cpu", None),
        (int4, "bfloat16", avx512, "cpu", None),
        (int4, "bfloat16", avx2, "cpu", "AVX-512"),
        (int4, "float32", avx512, "cpu", "model.dtype=bfloat16"),
        (awq, "bfloat16", frozenset({"asimd", "bf16"}), "cpu", None),
        (gptq, "bfloat16", amx, "cpu", "4 bits alone"),
        (float8, "bfloat16", avx512, "cpu", "AMX"),
        ({"quant_method": "fp8"}, "bfloat16", avx512, "cpu", "AMX"),
        ({"quant_method": "fp8"}, "bfloat16", amx, "cpu", None),
        ({"quant_method": "fp8"}, "float32", amx, "cpu", "model.dtype=bfloat16"),
        (dynamic, "float32", avx512, "cpu", None),
        (weights_alone, "bfloat16", amx, "cpu", "WFP8A16"),
        (nvfp4, "bfloat16", amx, "cpu", "NVFP4"),
        (ordered, "bfloat16", amx, "cpu", "desc_act"),
        ({"quant_method": "nosuch", "bits": 4}, "bfloat16", amx, "cpu", "no such scheme"),
        ({"quant_method": "bitsandbytes"}, "bfloat16", 9.0, "cuda", "no such scheme"),
        ({"quant_method": "fbgemm_fp8"}, "bfloat16", 9.0, "cuda", "no such scheme"),
        ({"quant_method": "auto-round", "bits": 4}, "bfloat16", avx512, "cpu", None),
        ({"quant_method": "mxfp4"}, "bfloat16", amx, "cpu", None),
        ({"quant_method": "mxfp4"}, "bfloat16", 7.5, "cuda", "compute capability 8.0"),
        ({"quant_method": "fp8"}, "bfloat16", 9.0, "cuda", None),
        (awq, "float16", 7.0, "cuda", "compute capability 7.5"),
        (awq, "float32", 9.0, "cuda", "model.dtype=bfloat16"),
    ]
    model = load(["model=llama3-8b"]).model
    for said, dtype, can, device, why in cases:
        asked = "flags" if device == "cpu" else "compute_capability"
        monkeypatch.setattr(processor, asked, lambda can=can: can)
        monkeypatch.setattr(described, "_said", lambda _, said=said: said)
        named = naming(model.id, said["quant_method"], f"cluster.device={device}", why or "")
        with (
            subtests.test(**said, dtype=dtype, device=device, why=why),
            pytest.raises(InputError, match=named) if why else nullcontext(),
        ):
            described.check(replace(model, dtype=dtype), device, "vllm")
            described.check(replace(model, dtype=dtype), device, "fake")


def _compressed(form: str, inputs: dict[str, str] | None = None, **weights: Any) -> dict[str, Any]:
    inputs = inputs or ({"strategy": "tensor"} if weights.get("strategy") == "tensor" else None)
    groups = {"group_0": {"weights": weights, "input_activations": inputs}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}


MODEL: dict[str, Any] = {
    "name": "m",
    "architecture": "decoder",
    "gpu_memory_utilization": 0.9,
    "pipeline_parallel": 1,
}
H100 = {"device": "cuda", "hardware": "NVIDIA H100 80GB HBM3"}
# Llama 3: bytes of bfloat16 weights, of the cache per token, and heads of queries and of keys.
LLAMA_8B = Need(16.1e9, 131_072, 32, 8)
LLAMA_70B = Need(141.1e9, 327_680, 64, 8)


@pytest.mark.parametrize(
    ("need", "hardware", "expected"),
    [
        (LLAMA_8B, "NVIDIA H100 80GB HBM3", 1),
        (LLAMA_8B, "Tesla T4", 2),
        (LLAMA_70B, "NVIDIA H100 80GB HBM3", 4),
        (LLAMA_70B, "NVIDIA H200", 2),
        (LLAMA_70B, "NVIDIA L40S", 4),
        (LLAMA_8B, "a GPU that nobody knows", 1),
    ],
)
def test_tensor_parallel_is_the_smallest_that_fits(
    need: Need, hardware: str, expected: int
) -> None:
    assert tensor_parallel(MODEL, {**H100, "hardware": hardware}, need) == expected


def test_tensor_parallel_divides_the_heads() -> None:
    one = Need(80e9, 327_680, 12, 12)
    assert tensor_parallel(MODEL, H100, one) == 2
    assert tensor_parallel(MODEL, H100, one._replace(weights=141.1e9)) == 4


def test_tensor_parallel_divides_the_heads_of_keys() -> None:
    six = Need(80e9, 327_680, 48, 6)  # 4 of 6 heads of keys would have no GPU of their own
    assert tensor_parallel(MODEL, H100, six) == 2
    with pytest.raises(InputError, match=naming("8 GPUs")):
        tensor_parallel(MODEL, H100, six._replace(weights=141.1e9))


def test_tensor_parallel_copies_a_head_of_keys_that_cannot_be_divided() -> None:
    whole = Need(100e9, 64e9 / described._TOKENS, 32, 8)
    assert tensor_parallel(MODEL, H100, whole) == 4
    with pytest.raises(InputError, match=naming("8 GPUs")):  # one head: 64 GB of cache on every GPU
        tensor_parallel(MODEL, H100, whole._replace(key_heads=1))


@pytest.mark.parametrize(
    ("capability", "stored", "width"),
    [(9.0, "bfloat16", 2), (7.5, "float16", 2), (7.5, "bfloat16", 4), (None, None, 2)],
)
def test_width_auto_is_that_of_the_dtype_that_the_run_settles_on(
    capability: float | None, stored: str | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "compute_capability", lambda: capability)
    assert described.bytes_per_number("auto", "cuda", lambda: stored) == width


def test_tensor_parallel_on_a_cpu_is_one() -> None:
    assert tensor_parallel(MODEL, {"device": "cpu", "hardware": None}, LLAMA_70B) == 1


def test_tensor_parallel_eight_too_few_names_the_field_to_give() -> None:
    with pytest.raises(InputError, match=naming("model.pipeline_parallel")):
        tensor_parallel(MODEL, H100, Need(1.3e12, 70_000, 128, 8))


def test_engines_that_share_a_gpu_are_refused_where_they_do_not_fit() -> None:
    two, one = ({**MODEL, "replicas": {"per_gpu": n}} for n in (2, 1))
    check_shared(two, H100, 30e9)
    check_shared(one, H100, 70e9)
    check_shared(two, {"device": "cuda", "hardware": "some GPU"}, 70e9)
    with pytest.raises(InputError, match=naming("per_gpu=2", "42 GB", "36", "80 GB", "per_gpu=1")):
        check_shared(two, H100, 40e9)


def test_tensor_parallel_pipeline_shares_the_weights() -> None:
    two = {**MODEL, "pipeline_parallel": 2}
    assert tensor_parallel(two, H100, LLAMA_70B) == 2


@pytest.mark.parametrize(("own", "expected"), [(131_072, 4096), (2048, 2048)])
def test_max_model_len_is_the_models_own_within_bounds(own: int, expected: int) -> None:
    assert (
        described.max_model_len(own, 32_768, {"device": "cuda", "cpu_kvcache_gib": 2}) == expected
    )


def test_model_of_a_paper_keeps_its_gpus() -> None:
    run = load(["model=llama3-70b", "cluster.device=cuda", "cluster.hardware='NVIDIA H200'"])
    assert run.model.tensor_parallel == 4
