"""Recipes: everything that determines an artifact's content, and so its name."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from factsweep.operators.errors import InputError
from factsweep.operators.wording.redact import holds_secret


@dataclass(frozen=True)
class Recipe:
    """Everything that determines an artifact's content."""

    stage: str
    version: int  # rises when the stage computes something else from the same fields
    fields: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)  # fingerprints of what it reads

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of the SHA-256 of the recipe.

        Raises:
            InputError: the recipe holds a secret.
        """
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """The recipe word for word, with sorted keys: the same text for the same content.

        A recipe is published, and a name is made of it, by which a short secret could be guessed:
        so one that holds a secret is an InputError.

        Raises:
            InputError: one does.
        """
        content = {
            "stage": self.stage,
            "version": self.version,
            "fields": self.fields,
            "inputs": dict(self.inputs),
        }
        if (field := holds_secret(content)) is not None:
            raise InputError(
                f"{field.removeprefix('fields.')} holds what looks like a secret, and results are "
                "named and described by it; put it into the environment instead."
            )
        return json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False)


def differences(left: Mapping[str, Any], right: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The fields in which two recipes differ, one line each."""
    for name in sorted({*left, *right}):
        here = f"{path}.{name}" if path else name
        a, b = left.get(name), right.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from differences(a, b, here)
        elif a != b:
            yield f"{here}: {json.dumps(a)} → {json.dumps(b)}"
