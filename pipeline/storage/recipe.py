"""Recipes: everything that determines an artifact's content, and so its name."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from factsweep.operators.errors import InputError
from factsweep.operators.wording.redaction import holds_secret


@dataclass(frozen=True)
class Recipe:
    """Everything that determines an artifact's content."""

    stage: str
    version: int  # incremented when the stage computes another result from the same fields
    fields: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)  # fingerprints of its inputs

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of the SHA-256 of the recipe."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """The canonical text of the recipe, with sorted keys.

        Raises:
            InputError: it holds a secret: recipes are published, and short secrets could be guessed
                from a fingerprint.
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


def differences(
    old_fields: Mapping[str, Any], new_fields: Mapping[str, Any], path: str = ""
) -> Iterator[str]:
    """The fields in which two recipes differ, one line per field."""
    for name in sorted({*old_fields, *new_fields}):
        field_path = f"{path}.{name}" if path else name
        old, new = old_fields.get(name), new_fields.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from differences(old, new, field_path)
        elif old != new:
            yield f"{field_path}: {json.dumps(old)} → {json.dumps(new)}"
