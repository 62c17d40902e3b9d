"""dtype: auto, with the flags of other processors and the answers of other drivers planted."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import models
from factsweep.pipeline.machine import processor
from factsweep.pipeline.runs.forecast import forecast, lines
from factsweep.pipeline.stages.plan import build_plan, resolve_run
from tests.messages import naming

Plant = Callable[[str], None]
AVX2 = "fpu sse2 ssse3 fma avx f16c avx2"
AVX512 = f"{AVX2} avx512f avx512bw avx512vl"


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test asks the machine again, and so do the tests after it."""
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)  # CI narrows it
    cached_functions = (processor.cpu, processor.flags, processor.gpu, processor.compute_capability)
    for function in cached_functions:
        function.cache_clear()
    yield
    for function in cached_functions:
        function.cache_clear()


@pytest.fixture
def plant_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Gives the CPU other flags, in the words of x86-64's /proc/cpuinfo."""

    def plant(flags: str, name: str = "flags") -> None:
        path = tmp_path / "cpuinfo"
        path.write_text(f"processor\t: 0\nmodel name\t: Some CPU\n{name}\t\t: {flags}\n\n")
        monkeypatch.setattr(processor, "_CPUINFO", path)

    return plant


@pytest.fixture
def plant_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Stands in for the driver's tool, which answers with this compute capability."""

    def plant(capability: str) -> None:
        tool = tmp_path / "nvidia-smi"
        answer = f"echo {capability}" if capability else "exit 9"
        tool.write_text(f'#!/bin/sh\ncase "$*" in *compute_cap*) {answer};; *) exit 9;; esac\n')
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return plant


def unread() -> str | None:
    raise AssertionError("the checkpoint's type was asked for")


BOTH = f"{AVX512} avx512_bf16 amx_bf16"


@pytest.mark.parametrize(
    ("name", "flags", "narrowed", "expected"),
    [
        ("flags", AVX2, "", "float32"),
        ("flags", AVX512, "", "float32"),
        ("flags", f"{AVX512} avx512_bf16", "", "bfloat16"),
        ("flags", f"{AVX512} amx_bf16 amx_tile", "", "bfloat16"),
        ("flags", "", "", "float32"),
        # What oneDNN may not use does not count.
        ("flags", BOTH, "AVX2", "float32"),
        ("flags", BOTH, "avx2_vnni", "float32"),
        ("flags", BOTH, "AVX512_CORE_BF16", "bfloat16"),
        # As ARM has it.
        ("Features", "fp asimd asimdhp", "", "float32"),
        ("Features", "fp asimd asimdhp i8mm bf16", "", "bfloat16"),
        (None, "", "", "float32"),  # without a cpuinfo
    ],
)
def test_best_cpu_is_bfloat16_where_a_flag_says_so(
    plant_flags: Callable[[str, str], None],
    name: str | None,
    flags: str,
    narrowed: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if name is None:
        monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "none")
    else:
        plant_flags(flags, name)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", narrowed)
    assert processor.choose_dtype("cpu", unread) == expected


@pytest.mark.parametrize("capability", ["8.0", "8.6", "9.0", "12.0", "", "[N/A]"])
def test_best_gpu_is_bfloat16_unless_it_is_known_to_be_older(
    plant_gpu: Plant, capability: str
) -> None:
    plant_gpu(capability)
    assert processor.choose_dtype("cuda", unread) == "bfloat16"


@pytest.mark.parametrize(
    ("stored", "expected"),
    [("float16", "float16"), ("bfloat16", "float32"), ("float32", "float32"), (None, "float32")],
)
def test_best_older_gpu_is_float16_only_for_weights_stored_in_it(
    plant_gpu: Plant, stored: str | None, expected: str
) -> None:
    plant_gpu("7.5")
    assert processor.choose_dtype("cuda", lambda: stored) == expected


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_settled_older_gpu_reads_the_type_of_the_checkpoint(
    plant_gpu: Plant, tmp_path: Path, key: str
) -> None:
    plant_gpu("7.0")
    (tmp_path / "config.json").write_text(f'{{"{key}": "float16"}}')
    model = replace(load([]).model, source="path", id=str(tmp_path))
    assert models.resolve_dtype(model, "cuda").dtype == "float16"


def test_settled_older_gpu_without_a_config_names_the_fix(plant_gpu: Plant) -> None:
    plant_gpu("7.0")
    model = replace(load([]).model, source="hub", id="nobody/nothing", revision="main")
    with pytest.raises(InputError, match=naming("model.id=nobody/nothing", "model.dtype")):
        models.resolve_dtype(model, "cuda")


def test_settled_package_on_an_older_gpu_and_encoder_anywhere_are_float32(
    plant_flags: Plant, plant_gpu: Plant
) -> None:
    plant_gpu("6.1")
    plant_flags(f"{AVX512} avx512_bf16")
    assert models.resolve_dtype(load([]).model, "cuda").dtype == "float32"
    model = replace(load(["model=bert-base-uncased"]).model, dtype="auto")
    assert [models.resolve_dtype(model, kind).dtype for kind in ("cpu", "cuda")] == ["float32"] * 2


def test_settled_type_that_was_given_stays(plant_flags: Plant) -> None:
    plant_flags(AVX2)
    assert resolve_run(load(["model.dtype=bfloat16"])).model.dtype == "bfloat16"


@pytest.mark.parametrize("flags", [AVX2, f"{AVX2} avx512_bf16"])
def test_planned_auto_is_the_same_plan_as_its_type_by_name(
    plant_flags: Plant, small_settings: Callable[..., Run], flags: str
) -> None:
    plant_flags(flags)
    plan = build_plan(small_settings())
    plan_by_name = build_plan(small_settings(f"model.dtype={plan.run.model.dtype}"))
    assert plan == plan_by_name
    assert plan.branches[0].answers.recipe.fields["model"]["dtype"] == plan.weights.model.dtype
    assert plan.weights.model.dtype != "auto"


@pytest.mark.parametrize(
    ("dtype", "flags", "is_warned"),
    [
        ("bfloat16", AVX2, True),
        ("float16", AVX2, True),
        ("bfloat16", AVX512, True),
        ("auto", AVX2, False),
        ("float32", AVX2, False),
        ("bfloat16", f"{AVX512} avx512_bf16", False),
        ("float16", f"{AVX512} avx512_fp16", False),
    ],
)
def test_plan_type_that_the_cpu_lacks_is_told_with_the_fix(
    plant_flags: Plant, small_settings: Callable[..., Run], dtype: str, flags: str, is_warned: bool
) -> None:
    plant_flags(flags)
    text = list(lines(*forecast(small_settings(f"model.dtype={dtype}"))))
    warnings = [line for line in text if line.startswith("warning: ")]
    assert text[0].endswith(f" in {'float32' if dtype == 'auto' else dtype}")
    assert len(warnings) == is_warned
    if is_warned:
        assert warnings[0].startswith(f"warning: model.dtype={dtype} is about 8 times slower")
        assert "(Some CPU" in warnings[0]
        assert warnings[0].endswith("give model.dtype=auto or model.dtype=float32.")
