"""What another version made: artifacts that a run of today would not find, but make anew."""

from collections.abc import Iterator
from importlib import metadata

from factsweep.operators.engines import ENGINES
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.ability import ABILITIES
from factsweep.pipeline.stages import (
    admit,
    aggregate,
    choose,
    expand,
    facts,
    given,
    knowledge_base,
    match,
)
from factsweep.pipeline.stages.asking import answer
from factsweep.pipeline.storage.lookup import Recipes
from factsweep.pipeline.storage.recipe import Recipe

_STAGES = {
    "facts": facts.VERSION,
    "knowledge-base": knowledge_base.VERSION,
    "prompts": expand.VERSION,
    "admitted": admit.VERSION,
    "chosen": choose.VERSION,
    **dict.fromkeys((table for each in ABILITIES for table in each.tables), answer.VERSION),
    "matched": match.VERSION,
    "metrics": aggregate.VERSION,
}
_GIVEN = "answers"  # the field of what was made of another system's answers


def outdated(recipe: Recipe, recipes: Recipes) -> list[str]:
    """What was of another version when an artifact, or what it was made of, was made.

    Software that is not installed here is none of another version: the artifact is for elsewhere.
    """
    found = dict.fromkeys(_own(recipe))
    for each in recipe.inputs.values():
        if (source := recipes.get(each)) is not None:
            found |= dict.fromkeys(outdated(source, recipes))
    return list(found)


def _own(recipe: Recipe) -> Iterator[str]:
    fields = recipe.fields
    now = given.VERSION if _GIVEN in fields else _STAGES.get(recipe.stage, recipe.version)
    if recipe.version != now:
        yield f"stage {recipe.stage} {recipe.version} → {now}"
    method = METHODS.get(str(fields.get("method")))
    if method and fields.get("version", method.measure.version) != method.measure.version:
        yield f"method {fields['method']} {fields['version']} → {method.measure.version}"
    for name, version in {**fields.get("software", {}), **fields.get("versions", {})}.items():
        yield from _software(name, str(version))


def _software(name: str, version: str) -> Iterator[str]:
    if name == "engine":
        name, _, version = version.partition(" ")
    now = _installed(name)
    if now is not None and now != version:
        yield f"{name} {version} → {now}"


def _installed(name: str) -> str | None:
    """The version of an engine or a distribution that is here; null if it is not."""
    engines = (kind.version().partition(" ") for kind in ENGINES.values())
    found = {engine: version for engine, _, version in engines}
    try:
        return found[name] if name in found else metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
