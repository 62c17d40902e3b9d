"""Code that a model brings, which decides numbers where it may run: it must be the model's own.

In a configuration `auto_map` may name code of another repository, `other/repo--modeling.Class`.
That is loaded as it is there on the day, and no fingerprint knows it.
"""

import json
from pathlib import Path

from factsweep.operators.errors import InputError, refusing
from factsweep.operators.redact import texts
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.inputs import hub

_CONFIGURATIONS = "*config.json"  # config.json, tokenizer_config.json, processor_config.json, …


def check_own(model: Model, commit: str | None) -> None:
    """Refuse code of another repository; `commit` is that of a model of the hub.

    Raises:
        InputError: a configuration names some, or cannot be read.
    """
    if not model.trust_remote_code or model.source == "package":
        return
    folder = Path(model.id)
    if commit is not None:
        fix = "check the network, and HF_TOKEN"
        folder = hub.snapshot(model.id, commit, [_CONFIGURATIONS], "model.id", fix)
    for path in sorted(folder.glob(_CONFIGURATIONS)):
        with refusing(f"{path}", "repair it, or fetch it again"):
            said = texts(json.loads(path.read_text()))
            named = [code for name, code in said if "auto_map" in name.split(".")]
        for code in named:
            owner, found, _ = code.partition("--")
            if found and owner != model.id:
                raise InputError(
                    f"{path} takes code from {owner} ({code}), which may change unseen; copy that "
                    f"code into a folder with the model, name it there without '{owner}--', and "
                    "pass model.id=<that folder>."
                )
