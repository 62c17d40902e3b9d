"""describe: the figures of a data set, as tables."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import polars as pl

from factsweep.operators.datasets import table_files
from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.readers import READERS
from factsweep.operators.datasets.readers import describe_contradictions as sentences
from factsweep.operators.engines.auxiliary_models import DependencyParser, SentenceEncoder
from factsweep.operators.errors import InputError
from factsweep.operators.metrics.data_set import Encode, Parse, diversity
from factsweep.operators.tables import data_set
from factsweep.operators.tables.formats import markdown
from factsweep.operators.tables.shared.paper_table import mark_other_facts
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.inputs.catalog import Entry, Source
from factsweep.pipeline.machine.logs import Meter
from factsweep.pipeline.storage.store import Store
from factsweep.pipeline.storage.tables import write_tables

_Result = TypeVar("_Result")

# Tables that sets of one reader alone have.
_FURTHER: Mapping[str, Mapping[str, Callable[[Facts], pl.DataFrame]]] = {
    "kamel": {"splits": data_set.splits, "labels-told-apart": data_set.distinguished_labels},
    **{
        reader: {"distractors": data_set.distractors_by_relation}
        for reader in ("distractors", "probing", "verbalisations")
    },
}
# A file by which a layout is known, the reader, and its data files.
_LAYOUTS = (
    ("patterns/*.jsonl", "pararel", "*/*.jsonl"),
    ("prompts.csv", "probelm", "*.[jc]s*"),
    ("question-templates.csv", "kamel", "**/*.*[ns][lv]"),
    ("**/*.parquet", "myriadlama", "**/*.parquet"),
    ("**/*.jsonl", "myriadlama", "**/*.jsonl"),
)


def describe(
    name: str,
    path: str | None = None,
    *,
    parser: str | None = None,
    encoder: str | None = None,
    out: str | None = None,
) -> Iterator[str]:
    """Measure a set: an entry of the catalog, or a folder or file; its tables as Markdown.

    `parser` is a spaCy pipeline, `encoder` a sentence encoder's folder or id. With `out`, the
    tables are written there as Markdown, CSV and LaTeX, together with the versions of the tools.

    Raises:
        InputError: no such set, or files, parser or encoder that cannot be used.
    """
    entry = find_entry(name)
    files = catalog.list_files(entry, path)
    facts = catalog.read_facts(entry, path)
    with open_measures(parser, encoder) as (parse, encode):
        measured = diversity(facts, parse=parse, encode=encode)
    published = compared = catalog.load_published("belief")
    if published is not None and catalog.find_departure(facts, entry.name, None) is not None:
        compared = mark_other_facts(published, entry.name)
    options = (("syntax", "parser", parser), ("semantics", "encoder", encoder))
    not_measured = {
        figure: f"not measured, since no --{option} was given"
        for figure, option, value in options
        if not value
    }
    tables = {
        "counts": data_set.sizes_with_published(facts, entry.name, published),
        "diversity": data_set.diversity_with_published(measured, entry.name, compared),
        "by-relation": data_set.by_relation(facts, measured),
        "template-examples": data_set.template_examples(facts),
        "missing": data_set.missing(measured, not_measured),
        **{name: table(facts) for name, table in _FURTHER.get(entry.reader, {}).items()},
    }
    record = {
        "set": entry.name,
        "reader": entry.reader,
        "sha256": catalog.checksum(files),
        "parser": DependencyParser(parser).versions if parser else None,
        "encoder": encoder,
    }
    for title, table in tables.items():
        if not table.is_empty():
            yield f"## {title.replace('-', ' ').capitalize()}\n\n{markdown(table)}"
    yield from sentences(catalog.contradictions(entry, path, facts))
    if out:
        write_tables(Store(out), tables)
        Store(out).put("describe.json", json.dumps(record, indent=1).encode())
        yield f"{out}: {len(tables)} tables, and how they were made (describe.json)"


def find_entry(name: str) -> Entry:
    """The entry of that name, or one made for a folder or file.

    Raises:
        InputError: there is none, and no reader knows the folder.
    """
    path = Path(name)
    if name in catalog.list_names() or not path.exists():
        return catalog.entry(name)
    if path.is_file():
        title, folder, layouts = table_files.title(path), path.parent, [("myriadlama", path.name)]
    else:
        title, folder = path.absolute().name, path
        layouts = [(reader, files) for mark, reader, files in _LAYOUTS if any(path.glob(mark))]
    for reader, files in layouts:
        source = Source("catalog", str(folder.absolute()), files)
        return Entry(title, "", source, "", "", reader, {}, {}, None, {})
    raise InputError(
        f"{name} holds no set that a reader knows ({', '.join(READERS)}); give another folder."
    )


@contextmanager
def open_measures(
    parser: str | None, encoder: str | None
) -> Iterator[tuple[Parse | None, Encode | None]]:
    """The measures of syntax and semantics, where one is given, with a progress line.

    Raises:
        InputError: a parser or an encoder that cannot be used.
    """
    parse = DependencyParser(parser) if parser else None
    encode = SentenceEncoder(encoder) if encoder else None
    with Meter("templates") as meter:
        yield (
            parse and _count_on_meter(parse, meter, "parsed"),
            encode and _count_on_meter(encode, meter, "encoded"),
        )


def _count_on_meter(
    measure: Callable[[Sequence[str]], _Result], meter: Meter, verb: str
) -> Callable[[Sequence[str]], _Result]:
    """The same, with the number of texts on the meter."""
    n_done = 0

    def measure_and_count(texts: Sequence[str]) -> _Result:
        nonlocal n_done
        result = measure(texts)
        n_done += len(texts)
        meter.show(f"{n_done:,} {verb}")
        return result

    return measure_and_count
