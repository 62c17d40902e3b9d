"""Arguments, parsers and quantisation schemes of vLLM, from its source.

vLLM itself would refuse them half a minute after an engine is started.
"""

import ast
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_FOLDER = "model_executor.layers.quantization"
_LINEAR = "model_executor.kernels.linear"
_AS_INC = "auto-round"  # what config.json calls the scheme that is inc to vLLM


def _statements(file: str) -> list[ast.stmt] | None:
    spec = find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        return None
    return ast.parse(Path(spec.submodule_search_locations[0], file).read_text("utf-8")).body


def arguments() -> frozenset[str] | None:
    """The arguments of vLLM's engine; null where vLLM is not installed."""
    statements = _statements("engine/arg_utils.py")
    if statements is None:
        return None
    classes = [node for node in statements if isinstance(node, ast.ClassDef)]
    (body,) = (node.body for node in classes if node.name == "EngineArgs")
    fields = (node.target for node in body if isinstance(node, ast.AnnAssign))
    return frozenset(field.id for field in fields if isinstance(field, ast.Name))


def parsers() -> frozenset[str] | None:
    """The names of vLLM's reasoning parsers; null where vLLM is not installed."""
    statements = _statements("reasoning/__init__.py")
    if statements is None:
        return None
    tables = (node.value for node in statements if isinstance(node, ast.Assign))
    keys = (key for table in tables if isinstance(table, ast.Dict) for key in table.keys)
    return frozenset(str(key.value) for key in keys if isinstance(key, ast.Constant))


class Scheme(NamedTuple):
    """The first compute capability of its GPUs (7.5), and the types of the other weights."""

    first_gpu: float
    dtypes: frozenset[str]


@cache
def schemes() -> frozenset[str] | None:
    """The schemes of vLLM, without those that it refuses as deprecated; null: not installed."""
    assigned = (node for node in _nodes(f"{_FOLDER}.__init__") if isinstance(node, ast.Assign))
    tables = {ast.unparse(node.targets[0]): _texts(node.value) for node in assigned}
    methods = tables.get("QuantizationMethods")
    return methods and (methods | {_AS_INC}) - tables["DEPRECATED_QUANTIZATION_METHODS"]


@cache
def scheme(name: str) -> Scheme | None:
    """The GPUs and types that vLLM has a scheme for; null: its source does not show them."""
    nodes = _nodes(f"{_FOLDER}.__init__")
    tables = [(node.keys, node.values) for node in nodes if isinstance(node, ast.Dict)]
    configs = {ast.unparse(k): ast.unparse(v) for t in tables for k, v in zip(*t, strict=True) if k}
    config = configs.get(repr(name), "")
    modules = {
        alias.name: f"{_FOLDER}.{node.module}" if node.level else str(node.module)
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    returned = {
        node.name: ast.unparse(node.body[-1])
        for scheme in _nodes(modules.get(config, ""))
        if isinstance(scheme, ast.ClassDef) and scheme.name == config
        for node in scheme.body
        if isinstance(node, ast.FunctionDef)
    }
    first = re.search(r"\d+", returned.get("get_min_capability", ""))
    types = re.findall(r"torch\.(\w+)", returned.get("get_supported_act_dtypes", ""))
    dtypes = frozenset(dtype.replace("half", "float16") for dtype in types)
    return Scheme(int(first[0]) / 10, dtypes) if first else None


@cache
def without_cpu() -> frozenset[str]:
    """The formats of layers that vLLM has kernels for on GPUs alone: nvfp4, mxfp8."""
    tables = (node for node in _nodes(f"{_LINEAR}.__init__") if isinstance(node, ast.AnnAssign))
    return frozenset(
        match[1].lower()
        for node in tables
        if node.value and not re.search(r"PlatformEnum\.CPU: \[\w", ast.unparse(node.value))
        if (match := re.fullmatch(r"_POSSIBLE_(\w+)_KERNELS", ast.unparse(node.target)))
    )


def _nodes(module: str) -> list[ast.AST]:
    try:
        file = f"{module.removeprefix('vllm.').replace('.', '/')}.py"
        return [*ast.walk(ast.Module(_statements(file) or [], []))]
    except FileNotFoundError:
        return []


def _texts(node: ast.expr) -> frozenset[str]:
    constants = (child.value for child in ast.walk(node) if isinstance(child, ast.Constant))
    return frozenset(map(str, constants))
