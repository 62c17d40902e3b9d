"""Flags of calls: none repeats a default, so one that is flipped by mistake stands out.

What most of them prevent shows only in tables larger than those of tests: another order of rows
each time (`maintain_order`), names read as patterns (`literal`), rows that a join (`nulls_equal`)
or a shorter sequence (`zip`) loses.
"""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEFAULTS: dict[str, object] = {
    **dict.fromkeys(("maintain_order", "literal", "nulls_equal", "nulls_last", "named"), False),
    **dict.fromkeys(("ignore_nulls", "descending", "reverse", "as_dict", "signed"), False),
    **dict.fromkeys(("frozen", "parents", "missing_ok", "required", "allow_unicode"), False),
    **dict.fromkeys(("flush", "cancel_futures", "hermitian", "return_inverse"), False),
    **dict.fromkeys(("capture_output", "daemon"), False),
    **dict.fromkeys(("ensure_ascii", "glob", "compare", "repr", "init", "hash", "soft"), True),
    **dict.fromkeys(("add_special_tokens", "frameon", "include_key"), True),
    "mkdir exist_ok": False,
    "touch exist_ok": True,
    "dumps sort_keys": False,
    "safe_dump sort_keys": True,
    **{f"{callee} strict": True for callee in ("cast", "drop", "rename", "to_date")},
}
# Where sequences of different lengths are meant: a prefix, or what is there of a row of places.
UNEQUAL = {
    "operators/prompts/tokens.py": 2,
    "operators/tables/belief.py": 2,
    "pipeline/commands/arguments.py": 1,
    "pipeline/results/run_warnings.py": 1,
}


@cache
def flags() -> list[tuple[str, str, str, object]]:
    """The file, callee, keyword and value of each flag in the code."""
    return [
        (str(path.relative_to(ROOT)), callee, str(keyword.arg), keyword.value.value)
        for room in ("operators", "pipeline")
        for path in sorted((ROOT / room).glob("**/*.py"))
        for call in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(call, ast.Call)
        for callee in [ast.unparse(call.func).rpartition(".")[2]]
        for keyword in call.keywords
        if isinstance(keyword.value, ast.Constant)
    ]


def test_no_flag_of_a_call_repeats_its_default() -> None:
    missing = object()
    repeated = [
        f"{place}: {callee}({name}={value})"
        for place, callee, name, value in flags()
        if DEFAULTS.get(f"{callee} {name}", DEFAULTS.get(name, missing)) is value
    ]
    assert repeated == []


def test_zip_loses_no_element_but_where_lengths_may_differ() -> None:
    unequal = [place for place, *flag in flags() if flag == ["zip", "strict", False]]
    assert Counter(unequal) == UNEQUAL
