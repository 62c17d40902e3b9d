"""Data sets of a table of facts, one per language, in the user's own folder."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl
import yaml

from factsweep.operators.construction.facts import (
    Templates,
    checked,
    cleaned,
    generic,
    proposal,
    reviewed,
    rows,
    undated,
)
from factsweep.operators.construction.paraphrase import MANUAL, PARAPHRASES
from factsweep.operators.datasets import table_files
from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.object_types import sentences
from factsweep.operators.datasets.readers import READERS
from factsweep.operators.errors import InputError, printable
from factsweep.operators.wording import listed
from factsweep.operators.wording.names import check
from factsweep.pipeline.building import fact_table, folder
from factsweep.pipeline.building.asking import Model, asked, proposed
from factsweep.pipeline.config import folders
from factsweep.pipeline.inputs import digests
from factsweep.pipeline.storage.store import Store
from factsweep.pipeline.storage.tables import parquet

_READER = READERS["myriadlama"]
_TEMPLATES_HEAD = """\
# Templates by language and relation: [X] is the subject, [Y] the object. Edit, add and remove them,
# then run `factsweep build facts` again. Those that fit any relation read like it.
"""
_FINDINGS = "findings.csv"
_SHOWN = 80  # characters of what was found
_PROPOSED = 5  # templates that a model is asked for; further ones are paraphrases of these


def build_facts(
    path: Path,
    *,
    name: str | None,
    templates: Path | None,
    language: str,
    after: str | None,
    cutoff: str | None,
    licence: str,
    model: Model | None = None,
    separator: str | None = None,
) -> Iterator[str]:
    """Write the sets of a table of facts; yields what was made, found and left out.

    Facts that are not later than `after` are left out. `cutoff` makes two samples of the facts, by
    which metrics are told apart: those until then, and those after it. A `model` writes the
    templates where there is no file of them, `n` for each relation. Cells are split at a
    `separator`.

    Raises:
        InputError: a column or all facts are missing, a template file holds something else, or the
            folder of a set holds something that this command did not make.
    """
    name = name or table_files.title(path)
    check(name, "the name of the set")
    facts, said = fact_table.read(path, language, separator)
    yield from said
    facts, dated = _after(facts, after)
    facts, changed = cleaned(_in_samples(facts, cutoff))
    usable, found = checked(facts)
    found = pl.concat([changed, undated(facts), found]).sort("row", maintain_order=True)
    if usable.is_empty():
        first = f"; the first: {found['finding'][0]}" if found.height else ""
        raise InputError(f"{path}: no fact can be asked, of {facts.height} rows{first}.")
    sheet = templates or path.with_name(f"{table_files.title(path)}.templates.yaml")
    yield from _sheet_written(sheet, usable, model)
    try:
        used, wrong = reviewed(usable, _templates(sheet))
    except InputError as error:
        raise InputError(f"{sheet}: {str(error).removeprefix(f'{sheet}: ')}") from error
    found = pl.concat([found, wrong])
    own = folders.own() or Path(folders.OWN).absolute()
    languages = usable["language"].unique(maintain_order=True).to_list()
    titles = {each: name if len(languages) == 1 else f"{name}-{each}" for each in languages}
    # All are read before one is published.
    sets = [(each, *_made(own, title, each, usable, used)) for each, title in titles.items()]
    types = [f"  {line}" for language, _, read in sets for line in sentences(read, language)]
    # What was found of a language without a set is beside the first.
    has_set = pl.col("language").is_in(languages)
    where = pl.when(has_set).then("language").otherwise(pl.lit(languages[0]))
    for each, made, read in sets:
        yield _publish(own, titles[each], each, made, read, found.filter(where == each), licence)
    yield from types
    yield from fact_table.strangers(usable)
    yield from _told(found, dated)


def _in_samples(facts: pl.DataFrame, cutoff: str | None) -> pl.DataFrame:
    """The facts in two samples: those until a day, and those after it."""
    if cutoff is None:
        return facts
    later = fact_table.later(facts, "--cutoff", cutoff)
    names = {True: f"after {cutoff}", False: f"until {cutoff}"}
    return facts.with_columns(sample=later.replace_strict(names, default="undated"))


def _made(
    own: Path, title: str, language: str, usable: pl.DataFrame, used: pl.DataFrame
) -> tuple[pl.DataFrame, Facts]:
    """The rows of a language's set, which its reader takes, and what it reads of them."""
    _check_free(own, title)
    mine = pl.col("language") == language
    made = rows(usable.filter(mine), used.filter(mine))
    return made, _READER.facts(made.lazy(), None)


def _told(found: pl.DataFrame, dated: Mapping[str, int]) -> Iterator[str]:
    """How many rows were left out or are doubtful, by why."""
    for why, n_rows in dated.items():
        if n_rows:
            yield f"  {n_rows:,} left out: {why}"
    where = pl.concat_str("relation", "text", separator=": ", ignore_nulls=True)
    first = where.first().str.slice(0, _SHOWN)
    counted = found.group_by("finding", "left_out", maintain_order=True).agg(pl.len(), first=first)
    for finding, left_out, n, shown in counted.sort("left_out", "finding").iter_rows():
        done, such = "left out" if left_out else "kept", "" if n == 1 else "the first: "
        yield f"  {n:,} {done}: {finding} ({such}{printable(shown)})"
    if not found.is_empty():
        yield f"  each of them, with its row: {_FINDINGS} of the set"


def _after(facts: pl.DataFrame, day: str | None) -> tuple[pl.DataFrame, dict[str, int]]:
    """The facts whose date is later, and how many are left out, by the reason."""
    if day is None:
        return facts, {}
    is_later = fact_table.later(facts, "--after", day)
    without = int(is_later.is_null().sum())
    reasons = {f"not after {day}": int((~is_later).sum()), "without a date as 2024-12-31": without}
    return facts.filter(is_later), reasons


def _sheet_written(sheet: Path, facts: pl.DataFrame, model: Model | None) -> Iterator[str]:
    """Write the file of templates, unless there is one, which no model replaces."""
    if sheet.exists():
        if model is not None:
            fix = f"move it away to have {model.name} write others, or leave out --model"
            raise InputError(f"{sheet} has templates already; {fix}.")
        return
    without: list[str] = []
    held = generic(facts) if model is None else _of_model(facts, model, sheet, without)
    text = yaml.safe_dump(held, sort_keys=False, allow_unicode=True, width=1000)
    sheet.write_text(_TEMPLATES_HEAD + text, encoding="utf-8")
    whose = "that fit any relation" if model is None else f"of {model.name}"
    yield f"{sheet}: written, with templates {whose}; edit it and run again"
    if without:
        yield f"  {listed(without)}: none of the model's, so those that fit any relation"
    if model is None:
        return
    mine = {r: texts for by in held.values() for r, texts in by.items() if r not in without}
    if few := [relation for relation, texts in mine.items() if len(texts) < model.n]:
        yield f"  {listed(few)}: fewer than {model.n}; --rounds has it asked more often"


def _of_model(facts: pl.DataFrame, model: Model, sheet: Path, without: list[str]) -> Templates:
    """Templates that a model proposes, and paraphrases of them where more are asked for.

    The relations for which it has none are added to `without`, and get those that fit any.
    """
    kept = sheet.with_suffix(".asked.jsonl")
    held = generic(facts)
    groups = facts.partition_by("language", "relation", maintain_order=True)
    few = min(model.n, _PROPOSED)
    prompts = [proposal(each, few) for each in groups]
    for group, texts in zip(groups, proposed(replace(model, n=few), prompts, kept), strict=True):
        language, relation = group.select("language", "relation").row(0)
        if not texts:
            without.append(relation)
        else:
            manual = pl.DataFrame([(relation, text) for text in texts], MANUAL, orient="row")
            more = -(-(model.n - len(texts)) // len(texts))
            said = asked(replace(model, n=more), manual, kept) if more else PARAPHRASES.to_frame()
            held[language][relation] = [*texts, *said["paraphrase"]][: model.n]
    return held


def _templates(path: Path) -> Templates:
    held = folders.content(path)
    languages = held.values() if isinstance(held, dict) else [None]
    lists = [each for by in languages for each in (by.values() if isinstance(by, dict) else [None])]
    if not all(isinstance(each, list) and all(isinstance(t, str) for t in each) for each in lists):
        raise InputError(
            f"{path}: expected languages, under each its relations, and under these lists of "
            "templates in quotation marks; correct it, or remove it to have it written."
        )
    return held  # type: ignore[no-any-return]  # just looked at


def _check_free(own: Path, name: str) -> None:
    """Refuse a name that is none, or under which something else lies already."""
    check(name, "the name of the set, which ends with the language of its rows")
    for shipped in (folders.CATALOG, folders.CONF / "benchmark"):
        if (shipped / f"{name}.yaml").exists():
            raise InputError(f"{name} is a set that ships; give another with --name.")
    out = own / "data_catalog" / name
    if out.exists() and not (out / _FINDINGS).is_file():
        raise InputError(f"{out} was not made by this command; choose another --name.")


def _publish(
    own: Path,
    name: str,
    language: str,
    made: pl.DataFrame,
    facts: Facts,
    found: pl.DataFrame,
    licence: str,
) -> str:
    """Write one set, its catalog entry and its benchmark; says what is in it."""
    twins, out = f"{name}-twins", own / "data_catalog" / name
    data = parquet(made)
    rows_file = f"rows.{digests.of_contents({'rows': data})[:12]}.parquet"
    more = {"builder": "facts", "licence": licence, "is_beside": True}
    text = folder.entry_of_rows(out, {rows_file: data}, made, facts, **more)
    size = (
        f"{facts.relations.height} relations, {facts.templates.height} templates, "
        f"{facts.pairs.height:,} facts"
    )
    card = (
        f"# {name}\n\nMade with `factsweep build facts`: {size}; language {language}; licence: "
        f"{licence}. Its checksum and counts are in `{name}.yaml` of the catalog, and what was "
        f"found in its table in `{_FINDINGS}`: {int(found['left_out'].sum())} left out.\n"
    )
    of = {} if language == "en" else {"language": language}
    # The entry names the file of its rows: until it is replaced, the set is the one before.
    files: dict[str, str | bytes] = {
        f"data_catalog/{name}/{_FINDINGS}": found.write_csv(),
        f"data_catalog/{name}/README.md": card,
        f"data_catalog/{name}/{rows_file}": data,
        f"data_catalog/{name}.yaml": text,
        f"benchmark/{name}.yaml": _benchmark("facts", name, data=name, **of),
        f"benchmark/{twins}.yaml": _benchmark("twins", twins, data=name),
    }
    for place, content in folder.encoded(files).items():
        Store(str(own)).put(place, content)
    for earlier in out.glob("rows*.parquet"):
        if earlier.name != rows_file:
            earlier.unlink(missing_ok=True)
    return f"{out}: {size}; factsweep run benchmark={name}, or {twins}"


def _benchmark(like: str, name: str, **fields: str) -> str:
    return yaml.safe_dump({"defaults": [like, "_self_"], "name": name, **fields}, sort_keys=False)
