"""Code that a model brings, which decides numbers where it may run: it must be the model's own.

In a configuration `auto_map` may name code of another repository, `other/repo--modeling.Class`.
That is loaded as it is there on the day, and no fingerprint knows it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from factsweep.operators.errors import InputError, refusing
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
    folder = Path(model.id) if commit is None else _fetched(model, commit)
    for path in sorted(folder.glob(_CONFIGURATIONS)):
        with refusing(f"{path}", "repair it, or fetch it again"):
            named = list(_named(json.loads(path.read_text())))
        for code in named:
            owner, found, _ = code.partition("--")
            if found and owner != model.id:
                raise InputError(
                    f"{path} takes code from {owner} ({code}), which may change unseen; copy that "
                    f"code into a folder with the model, name it there without '{owner}--', and "
                    "pass model.id=<that folder>."
                )


def _fetched(model: Model, commit: str) -> Path:
    """The folder in the hub's cache that has the model's configurations."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model.id, revision=commit, allow_patterns=_CONFIGURATIONS))
    except hub.errors() as error:
        fix = "check the network, and HF_TOKEN"
        raise InputError(hub.refusal(error, model.id, commit, fix)) from error


def _named(content: Any) -> Iterator[str]:
    """All code that a configuration or a part of it names."""
    if isinstance(content, dict):
        yield from _texts(content.get("auto_map"))
        content = list(content.values())
    if isinstance(content, list):
        for each in content:
            yield from _named(each)


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for each in content.values() if isinstance(content, dict) else content:
            yield from _texts(each)
