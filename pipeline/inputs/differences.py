"""Whether the files of a data set are as its entry of the catalog says."""

from collections.abc import Iterator, Sequence

from factsweep.operators.datasets.readers import FAULTS, NEEDS, READERS
from factsweep.operators.errors import InputError
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.inputs.catalog import Entry


def differences(entry: Entry, path: str | None = None) -> Iterator[str]:
    """What differs between a data set and its entry, one line each; nothing if it is right."""
    paths = catalog.files(entry, path)
    found = catalog.checksum(paths)
    expected = entry.checksum if path else entry.checksum or catalog.fetched_checksum(entry)
    if expected not in (None, found):
        yield f"checksum: expected {expected}, found {found}"
    reader = READERS[entry.reader]
    facts = catalog.read(entry, path)  # an unfit file is named here
    found_files = catalog.content_of(entry, paths)
    columns = reader.columns(found_files)
    for column in entry.columns:
        if column not in columns and not column.endswith("?"):
            yield f"column {column}: missing"
    figures = reader.figures(found_files, facts)
    sound = {name: 0 for name in FAULTS if name in figures}  # no rows that contradict each other
    for name, expected in {**sound, **entry.counts}.items():
        if name not in figures:
            raise InputError(
                f"data_catalog/{entry.name}.yaml: counts.{name} is no known count; "
                f"there are {', '.join(figures)}."
            )
        if figures[name] != expected:
            yield _difference(name, expected, figures[name], columns)


def _difference(name: str, expected: float, found: float, columns: Sequence[str]) -> str:
    by = f"{round(abs(found - expected), 2):,} {'more' if found > expected else 'fewer'}"
    lacking = [column for column in NEEDS.get(name, ()) if column not in columns]
    why = FAULTS.get(name) or (f"the files have no {' and no '.join(lacking)}" if lacking else "")
    return f"{name}: expected {expected:,}, found {found:,} ({by}){why and f'; {why}'}"
