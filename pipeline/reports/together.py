"""Which settings of past runs stand in one table: those over the same facts, each measured once.

Seeds of one setting are one row. Other facts are tables of their own. Of two runs that measured the
same in other ways the later one counts, and the other is named.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.wording import few
from factsweep.pipeline.results import past
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.storage.recipe import differences

_PER_SEED = ("seed", "repetition")


@dataclass(frozen=True)
class Together:
    """Settings over the same facts of a benchmark, and the sentences that a reader must know."""

    folder: str  # a name for their tables: the benchmark's, or of a part of it
    branches: tuple[PastBranch, ...]
    notes: tuple[str, ...]


def together(branches: Sequence[PastBranch]) -> list[Together]:
    """The settings that stand in one table, table by table."""
    by_benchmark: dict[tuple[str, str], list[PastBranch]] = {}
    for branch in branches:
        family = branch.how.show.published
        by_benchmark.setdefault((family, branch.benchmark), []).append(branch)
    return [found for each in by_benchmark.values() for found in _parts(each)]


def _parts(branches: Sequence[PastBranch]) -> Iterator[Together]:
    """One for each part of a benchmark's facts; the largest has the benchmark's name."""
    loaded: dict[str, Facts] = {}
    parts: dict[str, list[PastBranch]] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for branch in branches:
        artifact = branch.artifacts["facts"]
        if artifact.folder not in loaded:
            loaded[artifact.folder] = branch.facts
        facts = loaded[artifact.folder]
        content = _content(facts)
        parts.setdefault(content, []).append(branch)
        sizes[content] = facts.pairs.height, facts.relations.height
    ordered = sorted(parts, key=lambda each: sizes[each], reverse=True)
    folders = list(_folders(branches[0].benchmark, [sizes[each] for each in ordered]))
    for content, folder in zip(ordered, folders, strict=True):
        kept, notes = _once(parts[content])
        others = [each for each in folders if each != folder]
        yield Together(folder, tuple(kept), (*_of_others(folder, others, sizes[content]), *notes))


def _content(facts: Facts) -> str:
    """The facts and their words, whatever file, reader and method they come from."""
    keys = {"relations": "relation_id", "templates": "template_id", "pairs": "pair_id"}
    tables = [getattr(facts, table).sort(key) for table, key in keys.items()]
    tables += [table for _, table in sorted(facts.further.items())]
    texts = (table.select(sorted(table.columns)).write_ndjson() for table in tables)
    return hashlib.sha256("".join(texts).encode()).hexdigest()


def _folders(benchmark: str, sizes: Sequence[tuple[int, int]]) -> Iterator[str]:
    taken: dict[str, int] = {}
    for place, (n_facts, n_relations) in enumerate(sizes):
        name = f"{benchmark}-{n_facts}-facts-of-{n_relations}-relations" if place else benchmark
        taken[name] = taken.get(name, 0) + 1
        yield name if taken[name] == 1 else f"{name}-{taken[name]}"


def _of_others(folder: str, others: Sequence[str], size: tuple[int, int]) -> Iterator[str]:
    if others:
        n_facts, n_relations = size
        yield (
            f"{folder} has the runs over {n_facts:,} facts of {n_relations} relations; runs over "
            f"other parts of the benchmark are apart, in {', '.join(others)}."
        )


def _once(branches: Sequence[PastBranch]) -> tuple[list[PastBranch], list[str]]:
    """Each setting of each model with its seeds, and what was left out for which reason."""
    kept, notes = [], []
    for name, runs in past.by_setting(branches).items():
        chosen: list[PastBranch] = []
        for branch in sorted(runs, key=lambda each: each.started, reverse=True):
            rival = next((each for each in chosen if _conflict(each, branch)), None)
            if rival is None:
                chosen.append(branch)
                continue
            notes.append(
                f"skipped: {name} of the run {branch.run}; the later run {rival.run} measured the "
                f"same otherwise ({few(_conflict(rival, branch))})."
            )
        kept += sorted(chosen, key=lambda each: each.seed)
        if len(chosen) > 1:
            seeds = ", ".join(str(each.seed) for each in kept[-len(chosen) :])
            notes.append(
                f"{name}: mean ± standard deviation over the seeds {seeds}; answers, and what "
                f"compares them, are those of seed {kept[-len(chosen)].seed}."
            )
    return kept, notes


def _conflict(kept: PastBranch, branch: PastBranch) -> list[str]:
    """Why two measurements of a setting are no two seeds of it; nothing: they are."""
    found = []
    for stage, artifact in branch.artifacts.items():
        if stage != "facts" and stage in kept.artifacts:  # those are alike, whatever made them
            ours, theirs = artifact.recipe.fields, kept.artifacts[stage].recipe.fields
            found += [f"{stage} {line}" for line in differences(ours, theirs)]
    beside = [line for line in found if line.partition(" ")[2].partition(":")[0] not in _PER_SEED]
    return beside if kept.seed != branch.seed else beside or ["the same seed"]
