"""What a server did otherwise than an engine here: said in the run, and on its page."""

from collections import Counter
from collections.abc import Iterable, Iterator

from factsweep.pipeline.stages.asking.generate import SERVED, WITHOUT
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.shard import numbers


def differences(model: str, answered: Iterable[Artifact]) -> Iterator[str]:
    """One sentence for each thing, from what was counted with the answers."""
    artifacts = [each for each in answered if each.is_complete()]
    versions, lacking = served(artifacts), _counted(artifacts, WITHOUT)
    if len(versions) > 1:
        listed = ", ".join(f"{name} ({n:,.0f} prompts)" for name, n in versions.items())
        yield (
            f"{model} changed while it answered: {listed}. To keep one of them apart, give "
            "model.revision=<its model or fingerprint>; the answers are then others."
        )
    if n := lacking.get("logprobs"):
        yield (
            f"{model}: the server gave no log-probabilities for {n:,.0f} prompts of the canary, so "
            "they have no confidence of the model's own."
        )
    if "seed" in lacking:
        yield f"{model}: the server takes no seed, so its samples cannot be drawn again."
    elif any(each.stage == "samples" for each in artifacts):
        yield f"{model}: a server may ignore seeds, so samples need not come out the same again."


def served(answered: Iterable[Artifact]) -> dict[str, float]:
    """What a server said that it answered with, and how many prompts with each."""
    return _counted(answered, SERVED)


def _counted(answered: Iterable[Artifact], prefix: str) -> dict[str, float]:
    """The counts whose names begin with a text, by what comes behind it."""
    found = Counter[str]()
    for artifact in answered:
        for counts in artifact.counts(artifact.stage).values():
            found.update({k: n for k, n in numbers(counts).items() if k.startswith(prefix)})
    return {name.removeprefix(prefix): n for name, n in sorted(found.items())}
