"""Described: models without a file in conf/model/ are read from their own files."""

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
import transformers
from safetensors.torch import load_file, save_file

from factsweep.operators.errors import InputError
from factsweep.pipeline.config import model_metadata
from factsweep.pipeline.config.model_metadata import MemoryNeed, check_shared, tensor_parallel
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
    def made(family: str, name: str | None = None, **options: Any) -> Path:
        folder: Path = TINY["save"](
            family, tmp_path_factory.mktemp("m") / (name or family), **options
        )
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
    assert model.tensor_parallel == 1


def test_wrapper_of_images_is_refused_where_vllm_cannot_import_it(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one of text alone that vLLM has in the same module."""
    wrapper, text, sibling = map(make, ("gemma3", "qwen", "qwen"))
    config = json.loads((sibling / "config.json").read_text())
    (sibling / "config.json").write_text(json.dumps({**config, "architectures": ["Qwen3_5For…"]}))
    models = [load([f"model={folder}", *READ]).model for folder in (text, wrapper, sibling)]
    for spec in (None, "torchvision"):
        monkeypatch.setattr(model_metadata, "find_spec", lambda _, spec=spec: spec)
        model_metadata.check_wrapper(models[0])
        for model in models[1:]:
            lacks = naming(model.id, "without torchvision")
            with nullcontext() if spec else pytest.raises(InputError, match=lacks):
                model_metadata.check_wrapper(model)


def test_torchvision_of_another_torch_is_named(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def import_models(*_: object, **__: object) -> None:
        try:
            raise RuntimeError("operator torchvision::nms does not exist")
        except RuntimeError as error:
            raise ModuleNotFoundError("Could not import module 'LlamaConfig'") from error

    folder = make("llama")
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", import_models)
    with pytest.raises(InputError, match=naming("torchvision", "pip uninstall")):
        load([f"model={folder}"])


def test_hub_model_in_the_cache_is_read_without_a_network(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    commit, cache = "a" * 40, tmp_path / "models--org--tiny"
    shutil.copytree(make("llama"), cache / "snapshots" / commit)
    (cache / "refs").mkdir()
    (cache / "refs/main").write_text(commit)
    model = load(["model=org/tiny"]).model
    assert 0 < model.billions_of_parameters < 0.001


def test_hub_that_cannot_be_reached_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def unreachable(_api: object, name: str, **_: object) -> None:
        names.append(name)
        raise httpx2.ConnectError("Name or service not known")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", unreachable)
    with pytest.raises(InputError, match=naming("model=nosuch/thing", "network", "HF_TOKEN")):
        load(["model=nosuch/thing"])
    assert names == ["nosuch/thing"]


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
    overrides = ["model.name=mine", "model.max_model_len=99", "model.billions_of_parameters=9"]
    model = load([f"model={make('llama')}", *overrides]).model
    assert (model.name, model.max_model_len, model.billions_of_parameters) == ("mine", 99, 9)


def test_thinking_is_told_to_the_template_and_refused_where_nothing_is_thought(make: Make) -> None:
    model = f"model={make('llama', 'm-it', chat_template='{{ messages }}')}"
    chat = "model.chat_template=true"
    for thinking, options in {
        "on": {"enable_thinking": True},
        "off": {"enable_thinking": False},
        "false": {"enable_thinking": False},
        "null": None,
    }.items():
        run = load([model, chat, f"model.thinking={thinking}"])
        assert run.model.template_told == options, thinking
        # A prompt has to leave room for the thought, and for what closes it.
        n_reserved = run.model.max_model_len - run.decoding.max_tokens - room(run)
        assert n_reserved == (512 + 16 if thinking == "on" else 0), thinking
    for overrides, expected in {
        ("model.thinking=on",): "model.chat_template=true",
        (chat, "model.thinking=on", "benchmark=probelm-mini"): "reads probabilities",
        (chat, "model.thinking=maybe"): "model.thinking='maybe'",
        (chat, "model.thinking=on", "model.reasoning_parser=qwen"): "Did you mean qwen3?",
    }.items():
        with pytest.raises(InputError, match=re.escape(expected)):
            load([model, *overrides])


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
    ("family", "field"),
    [("bert-without-head", "architecture"), ("t5", "architecture"), ("bloom", "max_model_len")],
)
def test_model_that_does_neither_names_the_field_to_give(
    make: Make, family: str, field: str
) -> None:
    with pytest.raises(InputError, match=naming("give", f"model.{field}")):
        load([f"model={make(family)}"])


def test_model_without_safetensors_names_the_field_to_give(make: Make) -> None:
    folder = make("llama")
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=naming("no weights", "model.billions_of_parameters")):
        load([f"model={folder}"])
    (folder / "consolidated.safetensors").touch()
    with pytest.raises(InputError, match=naming("consolidated.safetensors", "save_pretrained")):
        load([f"model={folder}"])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{", ["config.json", "check the file"]),
        ('{"model_type": "llama", "hidden_size": "wide"}', ["config.json", "hidden_size"]),
        (
            '{"model_type": "odd", "auto_map": {"AutoConfig": "odd.OddConfig"}}',
            ["model.trust_remote_code=true"],
        ),
    ],
)
def test_damaged_config_or_own_code_is_refused(make: Make, config: str, words: list[str]) -> None:
    folder = make("llama")
    (folder / "config.json").write_text(config)
    (folder / "odd.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(InputError, match=naming(f"model={folder}", *words)) as refusal:
        load([f"model={folder}"])
    assert "HF_TOKEN" not in str(refusal.value)


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
    unquantised = load([f"model={make('llama')}"]).model
    groups = {"group_0": {"weights": {"num_bits": 4}}}
    fp8, int4_of_torchao = {"dtype": "fp8_e4m3"}, "Int8DynamicActivationInt4WeightConfig"
    quark = {"quant_method": "quark"}
    layers = {"a": {"quant_algo": "FP8"}, "b": {"quant_algo": "NVFP4"}}
    int32, uint8, float8 = torch.int32, torch.uint8, torch.float8_e4m3fn
    # The quantisation, the stored type and how many parameters a number of it holds, the scheme.
    cases: list[tuple[dict[str, Any], torch.dtype, int, str]] = [
        ({"quant_method": "awq", "bits": 4}, int32, 8, "awq, 4 bits"),
        ({"quant_method": "gptq", "bits": 2}, int32, 16, "gptq, 2 bits"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, uint8, 2, "bitsandbytes, 4 bits"),
        (
            {"quant_method": "compressed-tensors", "config_groups": groups},
            *(int32, 8, "compressed-tensors, 4 bits"),
        ),
        (
            {"quant_method": "compressed_tensors", "config_groups": {}},
            *(torch.int8, 1, "compressed-tensors"),
        ),
        ({"quant_method": "fp8"}, float8, 1, "fp8, 8 bits"),
        (
            {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}},
            *(uint8, 2, "modelopt, 4 bits"),
        ),
        (
            {**quark, "global_quant_config": {"weight": {"dtype": "uint4"}}},
            *(int32, 8, "quark, 4 bits"),
        ),
        (
            {**quark, "global_quant_config": {"weight": [fp8, {"dtype": "int4"}]}},
            *(int32, 8, "quark, 4 bits"),
        ),
        (
            {"quant_method": "torchao", "quant_type": {"default": {"_type": int4_of_torchao}}},
            *(uint8, 2, "torchao, 4 bits"),
        ),
    ]
    own_file = {  # of ModelOpt
        "modelopt, 8 bits": ({"quant_algo": "FP8", "kv_cache_quant_algo": None}, float8, 1),
        "modelopt, 4 bits": (
            {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers},
            uint8,
            2,
        ),
    }
    assert model_metadata.scheme(unquantised) is None
    in_config = [(c, {"config.json": {"quantization_config": c[0]}}) for c in cases]
    in_own_file = [
        (
            (fields, kind, n, scheme),
            {"hf_quant_config.json": {"producer": {"name": "modelopt"}, "quantization": fields}},
        )
        for scheme, (fields, kind, n) in own_file.items()
    ]
    for number, ((fields, kind, n, scheme), files) in enumerate([*in_config, *in_own_file]):
        folder = shutil.copytree(make("llama"), tmp_path / str(number))
        for name, content in files.items():
            old_content = (
                json.loads((folder / name).read_text()) if (folder / name).exists() else {}
            )
            (folder / name).write_text(json.dumps({**old_content, **content}))
        stored = load_file(folder / "model.safetensors")
        for name, weight in stored.items():
            if "proj" in name:
                stored[name] = torch.zeros(weight.numel() // n, dtype=kind)
        save_file(stored, folder / "model.safetensors", {"format": "pt"})
        with subtests.test(**fields):
            model = load([f"model={folder}"]).model
            assert model.billions_of_parameters == unquantised.billions_of_parameters
            assert model_metadata.scheme(model) == scheme
            n_bits = int(scheme.split(", ")[1][0]) if ", " in scheme else 16
            assert (
                model_metadata.weights_gb(model)
                == model_metadata.weights_gb(unquantised) * n_bits / 16
            )
            if fields.get("quant_method") == "bitsandbytes":  # which is not installed here
                with pytest.raises(InputError, match=naming(folder, "pip install bitsandbytes")):
                    model_metadata.check(model, "cpu", "transformers")


def _compressed(format_: str, inputs: str | None, **weights: Any) -> dict[str, Any]:
    activations = {"strategy": inputs} if inputs else None
    groups = {"group_0": {"weights": weights, "input_activations": activations}}
    return {"quant_method": "compressed-tensors", "format": format_, "config_groups": groups}


def test_quantised_weights_that_the_device_computes_wrongly_or_not_at_all_are_refused(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """As vLLM was seen to run or fail with tiny models on CPUs; nothing is loaded here."""
    avx2, avx512 = frozenset({"sse2", "avx2"}), frozenset({"sse2", "avx2", "avx512f"})
    amx = avx512 | {"amx_tile", "amx_int8"}
    int8 = _compressed("int-quantized", "token", num_bits=8, type="int")
    int4 = _compressed("pack-quantized", None, num_bits=4, type="int")
    float8 = _compressed("float-quantized", "token", num_bits=8, type="float")
    weights_only = _compressed("float-quantized", None, num_bits=8, type="float")
    nvfp4 = _compressed("nvfp4-pack-quantized", None, num_bits=4, type="float")
    awq, fp8 = {"quant_method": "awq", "bits": 4}, {"quant_method": "fp8"}
    cases: list[tuple[dict[str, Any], str, Any, str, str | None]] = [
        (int8, "float32", avx2, "cpu", "VNNI"),
        (int8, "float32", avx512, "cpu", "VNNI"),
        (int8, "float32", avx2 | {"avx_vnni"}, "cpu", None),
        (int8, "float32", avx512 | {"avx512_vnni"}, "cpu", None),
        (int8, "float32", frozenset({"asimd"}), "cpu", None),
        (int8, "float32", amx, "cpu", "model.dtype=bfloat16"),
        (int8, "bfloat16", amx, "cpu", None),
        (int4, "bfloat16", avx512, "cpu", None),
        (int4, "float32", avx512, "cpu", "model.dtype=bfloat16"),
        (float8, "bfloat16", avx2, "cpu", None),
        (fp8, "bfloat16", amx, "cpu", None),
        (fp8, "float32", amx, "cpu", "model.dtype=bfloat16"),
        (nvfp4, "bfloat16", amx, "cpu", "NVFP4"),
        (weights_only, "bfloat16", amx, "cpu", "WFP8A16"),
        ({"quant_method": "nosuch", "bits": 4}, "bfloat16", amx, "cpu", "no such scheme"),
        ({"quant_method": "bitsandbytes"}, "bfloat16", 9.0, "cuda", "no such scheme"),
        ({"quant_method": "auto-round", "bits": 4}, "bfloat16", avx512, "cpu", None),
        ({"quant_method": "mxfp4"}, "bfloat16", amx, "cpu", None),
        ({"quant_method": "mxfp4"}, "bfloat16", 7.5, "cuda", "compute capability 8.0"),
        (fp8, "bfloat16", 9.0, "cuda", None),
        (awq, "float16", 7.0, "cuda", "compute capability 7.5"),
        (awq, "float32", 9.0, "cuda", "model.dtype=bfloat16"),
    ]
    model = load(["model=llama3-8b"]).model
    for fields, dtype, hardware, device, problem in cases:
        name = "flags" if device == "cpu" else "compute_capability"
        monkeypatch.setattr(processor, name, lambda hardware=hardware: hardware)
        monkeypatch.setattr(
            model_metadata, "_quantisation_of_model", lambda _, fields=fields: fields
        )
        words = (model.id, fields["quant_method"], f"cluster.device={device}", problem or "")
        with (
            subtests.test(**fields, dtype=dtype, device=device, problem=problem),
            pytest.raises(InputError, match=naming(*words)) if problem else nullcontext(),
        ):
            model_metadata.check(replace(model, dtype=dtype), device, "vllm")
            model_metadata.check(replace(model, dtype=dtype), device, "fake")


MODEL: dict[str, Any] = {
    "name": "m",
    "architecture": "decoder",
    "gpu_memory_utilization": 0.9,
    "pipeline_parallel": 1,
}
H100 = {"device": "cuda", "hardware": "NVIDIA H100 80GB HBM3"}
# Llama 3: bytes of bfloat16 weights, of the cache per token, and heads of queries and of keys.
LLAMA_8B = MemoryNeed(16.1e9, 131_072, 32, 8)
LLAMA_70B = MemoryNeed(141.1e9, 327_680, 64, 8)


ONE, SIX = MemoryNeed(80e9, 327_680, 12, 12), MemoryNeed(80e9, 327_680, 48, 6)
WHOLE = MemoryNeed(100e9, 64e9 / model_metadata._TOKENS, 32, 8)  # 64 GB of cache


@pytest.mark.parametrize(
    ("need", "changes", "expected"),
    [
        (LLAMA_8B, {}, 1),
        (LLAMA_8B, {"hardware": "Tesla T4"}, 2),
        (LLAMA_8B, {"hardware": "a GPU that nobody knows"}, 1),
        (LLAMA_70B, {}, 4),
        (LLAMA_70B, {"hardware": "NVIDIA H200"}, 2),
        (LLAMA_70B, {"hardware": "NVIDIA L40S"}, 4),
        (LLAMA_70B, {"device": "cpu", "hardware": None}, 1),
        (LLAMA_70B, {"pipeline_parallel": 2}, 2),
        (ONE, {}, 2),
        (ONE._replace(weights=141.1e9), {}, 4),  # heads are divided
        (SIX, {}, 2),
        (SIX._replace(weights=141.1e9), {}, None),  # 4 of 6 heads of keys would have no GPU
        (WHOLE, {}, 4),
        (WHOLE._replace(key_heads=1), {}, None),  # one head of keys is copied to every GPU
        (MemoryNeed(1.3e12, 70_000, 128, 8), {}, None),
    ],
)
def test_tensor_parallel_is_the_smallest_that_fits_and_divides_the_heads(
    need: MemoryNeed, changes: dict[str, Any], expected: int | None
) -> None:
    if expected is None:
        with pytest.raises(InputError, match=naming("8 GPUs", "model.pipeline_parallel")):
            tensor_parallel(MODEL, H100, need)
    else:
        assert tensor_parallel({**MODEL, **changes}, {**H100, **changes}, need) == expected


@pytest.mark.parametrize(
    ("capability", "stored", "width"),
    [(9.0, "bfloat16", 2), (7.5, "float16", 2), (7.5, "bfloat16", 4), (None, None, 2)],
)
def test_width_auto_is_that_of_the_dtype_that_the_run_settles_on(
    capability: float | None, stored: str | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "compute_capability", lambda: capability)
    assert model_metadata.bytes_per_number("auto", "cuda", lambda: stored) == width


def test_engines_that_share_a_gpu_are_refused_where_they_do_not_fit() -> None:
    two, unshared = ({**MODEL, "replicas": {"per_gpu": n}} for n in (2, 1))
    check_shared(two, H100, 30e9)
    check_shared(unshared, H100, 70e9)
    check_shared(two, {"device": "cuda", "hardware": "some GPU"}, 70e9)
    with pytest.raises(InputError, match=naming("per_gpu=2", "42 GB", "36", "80 GB", "per_gpu=1")):
        check_shared(two, H100, 40e9)
