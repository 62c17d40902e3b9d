"""A folder with a knowledge base: entities.parquet and triples.parquet.

From a Wikidata dump it is made in parts of the same number of lines, in the folder .<name>.parts:
settled.json has their settings, triples/000042.parquet is of the 43rd part, and
entities/000042.parquet its last file. A second run skips the lines of finished parts.
"""

import json
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Any

import polars as pl

from factsweep.operators.construction import wikidata
from factsweep.operators.construction.set_card import DataFile, Origin
from factsweep.operators.datasets.facts import knowledge_base_of as knowledge_base
from factsweep.operators.datasets.knowledge_base import (
    KnowledgeBase,
    check_knowledge_base,
    from_names,
    from_triples,
)
from factsweep.operators.errors import InputError
from factsweep.pipeline.building.set_folder import check_new, describe_set, publish
from factsweep.pipeline.inputs import catalog, digests
from factsweep.pipeline.inputs.files import check_file, open_lines, read_labels, read_rows
from factsweep.pipeline.machine.logs import Meter

TABLES = ("triples", "entities")  # in the order in which the files of a part are written
_UNLABELLED = "factsweep.unlabelled"
# The columns of a table of facts, under the names that the files of others have for them.
_FACTS = {
    "subject_id": ("subject_id", "subject", "sub_uri"),
    "subject_label": ("subject_label", "sub_label", "sub_ent"),
    "relation_id": ("relation_id", "relation", "predicate_id", "rel_uri"),
    "object_id": ("object_id", "object", "obj_uri"),
    "object_label": ("object_label", "obj_label"),
}


def build_from_facts(
    data: Sequence[str],
    facts: Sequence[Path],
    aliases: Path | None,
    out: Path,
    *,
    origin: Origin | None = None,
) -> Iterator[str]:
    """Write the knowledge base of facts into the new folder `out`; yields a line on it.

    `data` are entries of the catalog, each with `=<its folder>` if it does not ship; `facts` have
    one fact per row: the ids of subject, relation and object, and labels. `aliases` are further
    names by id.

    Raises:
        InputError: a file or column is missing or unfit, there are no facts, or `out` exists.
    """
    from factsweep.pipeline.storage.tables import parquet  # not for workers that parse a dump

    check_new(out)
    parts = []
    for name, _, path in (entry.partition("=") for entry in data):
        set_facts = catalog.read_facts(catalog.entry(name), path or None)
        parts.append(set_facts.knowledge_base or knowledge_base(set_facts))
    parts += map(_read_fact_table, facts)
    if not parts:
        raise InputError("a knowledge base needs facts; give --dump, --data or --facts.")
    names = pl.concat([part.entities.select("entity_id", "labels") for part in parts])
    triples = pl.concat([part.triples for part in parts]).unique(maintain_order=True)
    if aliases is not None:
        names = pl.concat([names, read_labels(aliases).join(names, on="entity_id", how="semi")])
    base = check_knowledge_base(from_names(names, triples))
    files = {f"{table}.parquet": parquet(getattr(base, table)) for table in TABLES}
    n_rows = {table: getattr(base, table).height for table in TABLES}
    publish(out, {**files, **describe_set(out.name, files, origin, **_card_fields(n_rows))})
    yield f"{out}: {base.entities.height:,} entities, {base.triples.height:,} triples"


def build_from_dump(
    dump: Path,
    out: Path,
    *,
    languages: Sequence[str],
    lines_per_part: int,
    workers: int,
    origin: Origin | None = None,
) -> Iterator[str]:
    """Write the knowledge base of a Wikidata dump (.json, .gz, .bz2) into the new folder `out`.

    Memory is bounded by the lines of a few parts. Yields lines on it.

    Raises:
        InputError: the dump is unfit or another than before, or `out` exists.
    """
    check_new(out)
    check_file(dump)
    aside = out.with_name(f".{out.name}.parts")
    _keep_settings(aside, dump, languages, lines_per_part)
    _make_parts(dump, aside, languages, lines_per_part, workers)
    if not _list_parts(aside, "entities"):
        shutil.rmtree(aside)
        raise InputError(f"{dump} is empty; fetch it again.")
    metadata = map(pl.read_parquet_metadata, _list_parts(aside, "entities"))
    n_unlabelled = sum(int(of_part[_UNLABELLED]) for of_part in metadata)
    new = out.with_name(f".{out.name}.new")
    new.mkdir(exist_ok=True)
    n_rows = {}
    for table in TABLES:  # one file of the parts, in their order
        path = new / f"{table}.parquet"
        pl.scan_parquet(_list_parts(aside, table), glob=False).sink_parquet(path)
        n_rows[table] = pl.scan_parquet(path, glob=False).select(pl.len()).collect().item()
    files = digests.digest_each({f"{table}.parquet": new / f"{table}.parquet" for table in TABLES})
    data_files = []
    for name, sha256 in files.items():
        schema = pl.read_parquet_schema(new / name)
        data_files.append(DataFile(name, (new / name).stat().st_size, sha256, schema))
    for name, text in describe_set(out.name, data_files, origin, **_card_fields(n_rows)).items():
        (new / name).write_text(text, "utf-8")
    new.rename(out)
    shutil.rmtree(aside)
    yield f"{out}: {n_rows['entities']:,} entities, {n_rows['triples']:,} triples"
    yield f"  {n_unlabelled:,} items left out, no label in {' or '.join(languages)}"


def _card_fields(n_rows: Mapping[str, int]) -> dict[str, Any]:
    splits = {table: {"train": f"{table}.parquet"} for table in TABLES}
    return {"counts": n_rows, "n_rows": n_rows["triples"], "splits": splits}


def _read_fact_table(path: Path) -> KnowledgeBase:
    table, texts = read_rows(path), list[pl.Expr]()
    for ours, names in _FACTS.items():
        theirs = next((name for name in names if name in table.columns), None)
        if theirs is None:
            raise InputError(
                f"{path}: there is no column {' or '.join(names)}; it has "
                f"{', '.join(table.columns)}. Rename or add one."
            )
        if table.schema[theirs].is_nested():
            raise InputError(f"{path}: {theirs} has lists or objects; give one text in each row.")
        texts.append(pl.col(theirs).cast(pl.String).alias(ours))
    labels = {"subjects": pl.concat_list("subject_label"), "labels": pl.concat_list("object_label")}
    return from_triples(table.select(texts).with_columns(**labels))


def _keep_settings(aside: Path, dump: Path, languages: Sequence[str], lines_per_part: int) -> None:
    settings = {
        "dump": dump.name,
        "bytes": dump.stat().st_size,
        "time": dump.stat().st_mtime_ns,
        "languages": list(languages),
        "lines_per_part": lines_per_part,
    }
    for table in TABLES:
        (aside / table).mkdir(parents=True, exist_ok=True)
    path = aside / "settled.json"
    if not path.exists():
        new = path.with_suffix(".new")
        new.write_text(json.dumps(settings))
        new.rename(path)
    try:
        settled = dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} is damaged; remove {aside}, and run again.") from error
    for name, value in settings.items():
        if settled.get(name) != value:
            raise InputError(
                f"{aside} has parts of {name} {settled.get(name)}, not {value}; "
                "repeat the earlier command, or remove that folder."
            )


def _make_parts(
    dump: Path, aside: Path, languages: Sequence[str], lines_per_part: int, workers: int
) -> None:
    """Make the parts that are missing; one worker is this process, several are others."""
    finished = {path.stem for path in _list_parts(aside, "entities")}
    size, began, n_bytes = max(1, dump.stat().st_size), monotonic(), 0
    with (
        _process_pool(workers) as submit,
        open_lines(dump) as (raw, stream),
        Meter("knowledge base") as meter,
    ):
        lines = wikidata.check_complete(stream)
        for number, of_part in enumerate(iter(lambda: list(islice(lines, lines_per_part)), [])):
            n_bytes += sum(map(len, of_part))
            part = f"{number:06d}"
            if part not in finished:
                submit(_publish_part, aside, part, of_part, number * lines_per_part + 1, languages)
            rate = n_bytes / 1e6 / (monotonic() - began)
            meter.show(f"{raw.tell() / size:.1%} of {dump.name} · {rate:,.0f} MB/s unpacked")


@contextmanager
def _process_pool(workers: int) -> Iterator[Callable[..., None]]:
    """A function that runs a call in one of the processes, with at most two calls queued each."""
    if workers == 1:
        yield lambda call, *args: call(*args)
        return
    running = deque[Future[None]]()
    # Not forked: the threads of polars would be left behind.
    with ProcessPoolExecutor(workers, mp_context=get_context("forkserver")) as pool:

        def submit(call: Callable[..., None], *args: Any) -> None:
            running.append(pool.submit(call, *args))
            if len(running) > 2 * workers:
                running.popleft().result()

        try:
            yield submit
            for future in running:
                future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _publish_part(
    aside: Path, part: str, lines: list[bytes], first_line: int, languages: Sequence[str]
) -> None:
    """Publish a part; the file of its entities comes last."""
    items = wikidata.read_items(lines, languages, first_line)
    metadata = {_UNLABELLED: str(items.n_unlabelled)}
    for table in TABLES:
        path = aside / table / f"{part}.parquet"
        new = path.with_suffix(".new")
        getattr(items, table).write_parquet(new, metadata=metadata)
        new.rename(path)


def _list_parts(aside: Path, table: str) -> list[Path]:
    return sorted((aside / table).glob("*.parquet"))
