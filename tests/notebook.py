"""The notebook of docs/: runs its code cells, and keeps what they print and show.

python -m tests.notebook docs/notebook.ipynb --write    # in an empty folder: renew its outputs
"""

import argparse
import ast
import base64
import io
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

Cell = dict[str, Any]
Output = dict[str, Any]


def outputs(cells: list[Cell]) -> Iterator[list[Output]]:
    """The outputs of each code cell, as Jupyter would write them; all share one namespace."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(
        candidate for candidate in cells if candidate["cell_type"] == "code"
    ):
        printed = io.StringIO()
        with redirect_stdout(printed):
            value = _run("".join(cell["source"]), names)
        produced: list[Output] = []
        if printed.getvalue():
            text = printed.getvalue().splitlines(keepends=True)
            produced.append({"output_type": "stream", "name": "stdout", "text": text})
        if value is not None:
            produced.append(
                {
                    "output_type": "execute_result",
                    "execution_count": number + 1,
                    "data": _shown(value),
                    "metadata": {},
                }
            )
        yield produced


def _run(source: str, names: dict[str, Any]) -> Any:
    """Run the statements of a cell; returns the value of the last one, if it is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


def _shown(value: Any) -> dict[str, Any]:
    if not isinstance(value, Figure):
        return {"text/plain": repr(value).splitlines(keepends=True)}
    sink = io.BytesIO()
    value.savefig(sink, format="png", dpi=80, metadata={"Software": None})
    return {"image/png": base64.b64encode(sink.getvalue()).decode(), "text/plain": ["<Figure>"]}


def main() -> None:
    """Print the outputs as JSON, or write them into the notebook."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    notebook = json.loads(args.notebook.read_text())
    produced = list(outputs(notebook["cells"]))
    if not args.write:
        sys.stdout.write(f"{json.dumps(produced)}\n")
        return
    code = (candidate for candidate in notebook["cells"] if candidate["cell_type"] == "code")
    for number, (cell, new_outputs) in enumerate(zip(code, produced, strict=True), 1):
        cell.update(execution_count=number, outputs=new_outputs)
    args.notebook.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    from factsweep.pipeline.machine.streams import end

    main()
    sys.stdout.flush()
    end(0)
