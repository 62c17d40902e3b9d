"""Data sets of a table of facts, one per language, in the user's own folder."""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import yaml

from factsweep.operators import wording
from factsweep.operators.construction.facts import (
    ALIASES,
    NEEDED,
    Templates,
    check_rows,
    clean_rows,
    find_undated,
    generic_templates,
    parse_day,
    plain_rows,
    proposal_prompt,
    review_templates,
)
from factsweep.operators.construction.paraphrase import MANUAL
from factsweep.operators.construction.set_card import Origin
from factsweep.operators.datasets import layouts, table_files
from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.layouts import MEANT, guess_columns, is_structured, parse_list
from factsweep.operators.datasets.object_types import (
    TYPES,
    describe_types,
    type_name,
    warn_of_unread_types,
)
from factsweep.operators.datasets.readers import READERS
from factsweep.operators.datasets.table_files import kind
from factsweep.operators.errors import InputError, printable
from factsweep.operators.schemas import refuse
from factsweep.operators.wording import join_list
from factsweep.operators.wording.safe_names import check
from factsweep.pipeline.building import set_folder
from factsweep.pipeline.building.origin import list_files
from factsweep.pipeline.building.paraphraser import Model, request_paraphrases, request_templates
from factsweep.pipeline.config import folders
from factsweep.pipeline.inputs import digests, files
from factsweep.pipeline.storage.store import Store
from factsweep.pipeline.storage.tables import parquet

_MORE = ("subject_id", "object_id", *ALIASES, "popularity", "sample", "date", "language", "type")
_READER = READERS["myriadlama"]
_TEMPLATES_HEAD = """\
# Templates by language and relation: [X] is the subject, [Y] the object. Edit, add and remove them,
# then run `factsweep build facts` again. Those that fit any relation read like it.
"""
_FINDINGS = "findings.csv"
_SHOWN = 80  # characters of a finding
_PROPOSED = 5  # templates that a model is asked for; further ones are paraphrases of these


def build_facts(
    path: Path,
    *,
    name: str | None,
    templates: Path | None,
    language: str,
    after: str | None,
    cutoff: str | None,
    model: Model | None = None,
    separator: str | None = None,
    origin: Origin | None = None,
) -> Iterator[str]:
    """Write the sets of a table of facts; yields lines on them, and on omitted facts.

    Facts that are not later than `after` are left out. `cutoff` makes two samples of the facts:
    those until that day, and those after it. A `model` writes the templates where there is no file
    of them, `n` for each relation. Cells are split at a `separator`.

    Raises:
        InputError: a column or all facts are missing, a template file holds something else, or the
            folder of a set holds something that this command did not make.
    """
    name = name or table_files.title(path)
    check(name, "the name of the set")
    facts, notes = read_table(path, language, separator)
    yield from notes
    facts, n_omitted = _split_by_date(facts, after, cutoff)
    facts, changed = clean_rows(facts)
    usable, findings = check_rows(facts)
    findings = pl.concat([changed, find_undated(facts), findings]).sort("row", maintain_order=True)
    if usable.is_empty():
        first = f"; the first: {findings['finding'][0]}" if findings.height else ""
        raise InputError(f"{path}: no fact can be asked, of {facts.height} rows{first}.")
    sheet = templates or path.with_name(f"{table_files.title(path)}.templates.yaml")
    yield from _write_templates(sheet, usable, model)
    try:
        good_templates, of_templates = review_templates(usable, _read_templates(sheet))
    except InputError as error:
        raise InputError(f"{sheet}: {str(error).removeprefix(f'{sheet}: ')}") from error
    findings = pl.concat([findings, of_templates])
    if origin is not None and templates is None:
        sources = (*origin.sources, *list_files([sheet], origin.licence))
        origin = replace(origin, sources=sources)
    folder_path = folders.own_folder() or Path(folders.OWN).absolute()
    languages = usable["language"].unique(maintain_order=True).to_list()
    titles = {code: name if len(languages) == 1 else f"{name}-{code}" for code in languages}
    sets: dict[str, tuple[pl.DataFrame, Facts]] = {}
    for code, title in titles.items():  # all are read before one is published
        _check_name_is_free(folder_path, title)
        is_own = pl.col("language") == code
        set_rows = plain_rows(usable.filter(is_own), good_templates.filter(is_own))
        sets[code] = set_rows, _READER.facts(set_rows.lazy(), None)
    types = [f"  {line}" for code, (_, read) in sets.items() for line in describe_types(read, code)]
    # Findings of a language without a set go to the first set.
    has_set = pl.col("language").is_in(languages)
    set_language = pl.when(has_set).then("language").otherwise(pl.lit(languages[0]))
    for code, (set_rows, read) in sets.items():
        of_set = findings.filter(set_language == code)
        of_language = origin and replace(origin, language=code)
        yield _publish_set(folder_path, titles[code], code, set_rows, read, of_set, of_language)
    yield from types
    yield from find_unshared_languages(usable)
    yield from _summarise_findings(findings, n_omitted)


def _split_by_date(
    facts: pl.DataFrame, after: str | None, cutoff: str | None
) -> tuple[pl.DataFrame, dict[str, int]]:
    """The facts after a day, with their `sample` by another day; the number omitted, by reason."""
    n_omitted: dict[str, int] = {}
    if after is not None:
        is_later = _find_later(facts, "--after", after)
        n_omitted[f"not after {after}"] = int((~is_later).sum())
        n_omitted["without a date as 2024-12-31"] = int(is_later.is_null().sum())
        facts = facts.filter(is_later)
    if cutoff is not None:
        is_later = _find_later(facts, "--cutoff", cutoff)
        names = {True: f"after {cutoff}", False: f"until {cutoff}"}
        facts = facts.with_columns(sample=is_later.replace_strict(names, default="undated"))
    return facts, n_omitted


def _summarise_findings(findings: pl.DataFrame, n_omitted: Mapping[str, int]) -> Iterator[str]:
    for reason, n_rows in n_omitted.items():
        if n_rows:
            yield f"  {n_rows:,} left out: {reason}"
    text = pl.concat_str("relation", "text", separator=": ", ignore_nulls=True)
    first = text.first().str.slice(0, _SHOWN)
    counts = findings.group_by("finding", "left_out", maintain_order=True).agg(
        pl.len(), first=first
    )
    for finding, is_left_out, n, example in counts.sort("left_out", "finding").iter_rows():
        verb, prefix = "left out" if is_left_out else "kept", "" if n == 1 else "the first: "
        yield f"  {n:,} {verb}: {finding} ({prefix}{printable(example)})"
    if not findings.is_empty():
        yield f"  each of them, with its row: {_FINDINGS} of the set"


def _write_templates(sheet: Path, facts: pl.DataFrame, model: Model | None) -> Iterator[str]:
    """Write the file of templates, unless there is one, which no model replaces."""
    if sheet.exists():
        if model is not None:
            fix = f"move it away to have {model.name} write others, or leave out --model"
            raise InputError(f"{sheet} has templates already; {fix}.")
        return
    templates, without = generic_templates(facts), list[str]()
    if model is not None:
        # A model proposes some for each relation; paraphrases of these make up the rest.
        answers = sheet.with_suffix(".asked.jsonl")
        groups = facts.partition_by("language", "relation", maintain_order=True)
        n = min(model.n, _PROPOSED)
        proposals = request_templates(
            replace(model, n=n), [proposal_prompt(g, n) for g in groups], answers
        )
        for group, texts in zip(groups, proposals, strict=True):
            language, relation = group.select("language", "relation").row(0)
            if not texts:
                without.append(relation)
                continue
            manual = pl.DataFrame([(relation, text) for text in texts], MANUAL, orient="row")
            n_each = -(-(model.n - len(texts)) // len(texts))
            sentences = [*texts]
            if n_each:
                paraphrases = request_paraphrases(replace(model, n=n_each), manual, answers)
                sentences.extend(paraphrases["paraphrase"])
            templates[language][relation] = sentences[: model.n]
    text = yaml.safe_dump(templates, sort_keys=False, allow_unicode=True, width=1000)
    sheet.write_text(_TEMPLATES_HEAD + text, encoding="utf-8")
    source = "that fit any relation" if model is None else f"of {model.name}"
    yield f"{sheet}: written, with templates {source}; edit it and run again"
    if without:
        yield f"  {join_list(without)}: none of the model's, so the ones that fit any relation"
    lists = {relation: texts for by in templates.values() for relation, texts in by.items()}
    short = [r for r, texts in lists.items() if model and r not in without and len(texts) < model.n]
    if model is not None and short:
        yield f"  {join_list(short)}: fewer than {model.n}; --rounds has it asked more often"


def _read_templates(path: Path) -> Templates:
    match folders.content(path):
        case dict(sheet) if all(isinstance(relations, dict) for relations in sheet.values()):
            lists = [texts for relations in sheet.values() for texts in relations.values()]
            if all(isinstance(ts, list) and all(isinstance(t, str) for t in ts) for ts in lists):
                return sheet
    raise InputError(
        f"{path}: expected languages, under each its relations, and under these lists of "
        "templates in quotation marks; correct it, or remove it to have it written."
    )


def _check_name_is_free(folder_path: Path, name: str) -> None:
    check(name, "the name of the set, which ends with the language of its rows")
    for shipped in (folders.CATALOG, folders.CONF / "benchmark"):
        if (shipped / f"{name}.yaml").exists():
            raise InputError(f"{name} is a set that ships; give another with --name.")
    out = folder_path / "data_catalog" / name
    if out.exists() and not (out / _FINDINGS).is_file():
        raise InputError(f"{out} was not made by this command; choose another --name.")


def _publish_set(
    folder_path: Path,
    name: str,
    language: str,
    set_rows: pl.DataFrame,
    facts: Facts,
    findings: pl.DataFrame,
    origin: Origin | None,
) -> str:
    """Write one set, its catalog entry and its benchmark; returns a line on it."""
    twins, out = f"{name}-twins", folder_path / "data_catalog" / name
    data = parquet(set_rows)
    rows_file = f"rows.{digests.digest_contents({'rows': data})[:12]}.parquet"
    fields = {"builder": "facts", "origin": origin, "is_beside": True}
    text = set_folder.entry_of_rows(out, {rows_file: data}, set_rows, facts, **fields)
    size = (
        f"{facts.relations.height} relations, {facts.templates.height} templates, "
        f"{facts.pairs.height:,} facts"
    )
    note = (
        f"Its checksum and counts are in `{name}.yaml` of the catalog, and the findings of its "
        f"table in `{_FINDINGS}`: {int(findings['left_out'].sum())} left out."
    )
    tables: dict[str, str | bytes] = {rows_file: data, _FINDINGS: findings.write_csv()}
    fields_of_card = set_folder.fields_of_rows(facts, {rows_file: data}, set_rows.height)
    card = set_folder.describe_set(name, tables, origin, **fields_of_card, note=note)
    language_field = {} if language == "en" else {"language": language}
    # The entry names the file of its rows: until it is replaced, the earlier set is read.
    files: dict[str, str | bytes] = {
        **{f"data_catalog/{name}/{file}": content for file, content in {**tables, **card}.items()},
        f"data_catalog/{name}.yaml": text,
        f"benchmark/{name}.yaml": _format_benchmark("facts", name, data=name, **language_field),
        f"benchmark/{twins}.yaml": _format_benchmark("twins", twins, data=name),
    }
    for place, content in set_folder.encode_files(files).items():
        Store(str(folder_path)).put(place, content)
    for earlier in out.glob("rows*.parquet"):
        if earlier.name != rows_file:
            earlier.unlink(missing_ok=True)
    return f"{out}: {size}; factsweep run benchmark={name}, or {twins}"


def _format_benchmark(like: str, name: str, **fields: str) -> str:
    return yaml.safe_dump({"defaults": [like, "_self_"], "name": name, **fields}, sort_keys=False)


SEPARATOR_OPTION = "--separator "


def read_table(
    path: Path, language: str, separator: str | None = None
) -> tuple[pl.DataFrame, list[str]]:
    """The facts of a table with their rows, from 0, and languages; and notes on the columns.

    Rows without a language of their own are in `language`. Cells are split at a `separator`.

    Raises:
        InputError: a needed column or all rows are missing; a popularity that is no number, or
            other names that are no list.
    """
    facts = files.read_rows(path, as_written=True)
    columns = facts.columns
    name_by_column = guess_columns(columns, (*NEEDED, *_MORE))
    facts = facts.rename(name_by_column)
    if missing := [column for column in NEEDED if column not in facts.columns]:
        names = [f"{column} (or {wording.join_list(MEANT[column], 'or')})" for column in missing]
        fix = f"name a column {' and one '.join(names)}; one row is one fact"
        if {"relation", "object"} <= {*missing} and kind(path) == ".csv":
            fix += _suggest_unpivot(path, name_by_column, columns)
        lacks = f"no column is {wording.join_list(missing, 'or')}"
        raise InputError(f"{path}: {lacks}; it has {', '.join(columns)}: {fix}.")
    if facts.is_empty():
        raise InputError(f"{path} has columns and no rows; write one row for each fact.")
    facts = facts.drop("row", strict=False).with_row_index("row")
    notes = [
        *warn_of_unread_types(facts.lazy()),
        *layouts.warn_of_joined_cells(facts.lazy(), SEPARATOR_OPTION, separator),
    ]
    try:
        facts = layouts.split_cells(facts, separator) if separator else facts
        layouts.check_aliases(facts.lazy(), SEPARATOR_OPTION)
    except InputError as error:
        raise InputError(f"{path}, {error}") from error
    for name in ALIASES:
        if name in facts.columns:
            _check_aliases(facts[name], path)
    texts = [name for name in (*NEEDED, *_MORE) if name in facts.columns and name not in ALIASES]
    _check_single_values(facts.select(texts), path)
    facts = facts.with_columns(pl.col(texts).cast(pl.String).str.strip_chars())
    _check_popularity_and_types(facts, path)
    own_language = pl.col("language") if "language" in facts.columns else pl.lit(None, pl.String)
    own_language = own_language.str.to_lowercase().replace("", None)
    facts = facts.with_columns(
        language=own_language.fill_null(language.lower()),
        # The reader would take a slash for a part of a URL.
        relation=pl.col("relation").str.replace_all("/", " "),
    )
    pairs = name_by_column.items()
    read_as = [f"column {column.strip()} is read as {name}" for column, name in pairs]
    present = [*(name_by_column.get(column, column) for column in columns), "language"]
    if unread := [name for name in present if name not in (*NEEDED, *_MORE)]:
        optional = ", ".join(name for name in _MORE if name not in present)
        read_as.append(f"not read: {', '.join(unread)}; further columns that are: {optional}")
    lines = [*(f"{path}: {line}" for line in read_as), *_warn_of_unknown_languages(facts)]
    return facts, [*lines, *(f"{path}: {line}" for line in notes)]


def _find_later(facts: pl.DataFrame, option: str, day: str) -> pl.Series:
    """Whether each fact is of a later date; null where it has none.

    Raises:
        InputError: `day` is no date, or the table has none.
    """
    try:
        first = datetime.date.fromisoformat(day)
    except ValueError as error:
        raise InputError(f"{option} {day}: no date; write it as 2024-12-31.") from error
    if "date" not in facts.columns:
        raise InputError(f"{option} {day}: the table has no column date; add it.")
    return facts.select(parse_day(pl.col("date")) > first).to_series()


def find_unshared_languages(facts: pl.DataFrame) -> Iterator[str]:
    """The languages that share no fact with the first: a study would compare nothing."""
    subject = pl.col("subject_id") if "subject_id" in facts.columns else pl.col("subject")
    subjects = facts.select("language", "relation", subject=subject.fill_null(pl.col("subject")))
    first, *other_languages = subjects.partition_by("language", maintain_order=True)
    for other in other_languages:
        if other.join(first, on=["relation", "subject"], how="semi").is_empty():
            yield (
                f"  no fact in {other['language'][0]} is one in {first['language'][0]}: to compare "
                "languages, give each fact the same relation and subject_id in all of them"
            )


def _suggest_unpivot(path: Path, name_by_column: Mapping[str, str], columns: Sequence[str]) -> str:
    """The command for a table with a row per subject, and a column per relation."""
    subjects = (column for column, name in name_by_column.items() if name == "subject")
    subject = next(subjects, columns[0])
    long = path.with_name(f"{path.stem}-long.csv")
    args = f'index={subject!r}, variable_name="relation", value_name="object"'
    renamed = "" if subject == "subject" else f'.rename({{{subject!r}: "subject"}})'
    return (
        ". Where a row is a subject and each further column a relation, make the table long: "
        f"`import polars as pl; pl.read_csv({str(path)!r}, infer_schema=False).unpivot({args})"
        f".drop_nulls(){renamed}.write_csv({str(long)!r})`"
    )


def _warn_of_unknown_languages(facts: pl.DataFrame) -> Iterator[str]:
    codes = folders.files("language")
    for language in facts["language"].unique(maintain_order=True):
        if language != "en" and language not in codes:
            row = int((facts["language"] == language).arg_max() or 0)
            yield (
                f"  language {language!r} (row {row}, counted from 0) has no words: write a code "
                f"such as de, or {folders.OWN}/language/{language}.yaml; there are "
                f"{', '.join(codes)}"
            )


def _check_single_values(facts: pl.DataFrame, path: Path) -> None:
    for column in facts:
        is_unfit = column.is_not_null()  # a list or an object of JSON, Parquet or a cell of CSV
        if not column.dtype.is_nested():
            text = pl.col(column.name).cast(pl.String)
            is_unfit = column.to_frame().select(is_structured(text)).to_series()
        for row in is_unfit.arg_true().head(1):
            raise InputError(
                f"{path}, row {row} (counted from 0): {column.name} is "
                f"{column.slice(row, 1).to_list()[0]}; write one value in each row."
            )


def _check_popularity_and_types(facts: pl.DataFrame, path: Path) -> None:
    if "popularity" in facts.columns:
        popularity = pl.col("popularity").replace("", None)
        is_number = popularity.cast(pl.Float64, strict=False).is_finite().fill_null(value=False)
        unfit = (
            ", row {row} (counted from 0): popularity {popularity!r} is no number; correct it, or "
            "leave it empty."
        )
        problems = {unfit: popularity.is_not_null() & ~is_number}
        refuse(facts, problems, ["row", "popularity"], str(path))
    if "type" in facts.columns:
        facts = facts.select("row", type=type_name(pl.col("type")))
        is_type = pl.col("type").is_in(TYPES)
        unfit = f", row {{row}} (counted from 0): type {{type!r}} is none of {', '.join(TYPES)}."
        problems = {unfit: is_type.any() & ~is_type & (pl.col("type") != "")}
        refuse(facts, problems, ["row", "type"], str(path))


def _check_aliases(column: pl.Series, path: Path) -> None:
    for row, value in enumerate(column):
        names: object = value.to_list() if isinstance(value, pl.Series) else value
        if isinstance(value, str):
            try:
                names = parse_list(value, column.name, row)
            except InputError as error:
                raise InputError(f"{path}, {error}") from error
        are_texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if names is not None and not are_texts:
            raise InputError(
                f"{path}, row {row} (counted from 0): {column.name} is {value}, and names are "
                "texts; write them in quotation marks."
            )
