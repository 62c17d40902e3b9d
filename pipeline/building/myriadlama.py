"""A set like MyriadLAMA from facts, names, templates and, where there is one, a paraphraser."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import polars as pl

from factsweep.operators.construction import myriadlama
from factsweep.operators.construction.myriadlama import FACTS, Built
from factsweep.operators.construction.paraphrase import MANUAL, SLOTS, review_sheet, reviewed
from factsweep.operators.construction.wikidata import Filter
from factsweep.operators.errors import InputError, reason
from factsweep.operators.schemas import refuse
from factsweep.pipeline.building.asking import Model, asked
from factsweep.pipeline.building.folder import check_new, entry_of_rows, left_out, publish
from factsweep.pipeline.inputs.sources import dump, labels, rows, table, texts_by_relation
from factsweep.pipeline.storage.tables import parquet

_SHEET = "review.csv"


@dataclass(frozen=True)
class Sources:
    """The files: tables, or a Wikidata dump for those that are null (names in `languages`)."""

    facts: Path
    templates: Path
    labels: Path | None
    knowledge: Path | None
    dump: Path | None
    languages: Sequence[str] = ("en", "mul")


class _Tables(NamedTuple):
    facts: pl.DataFrame
    labels: pl.DataFrame
    manual: pl.DataFrame
    knowledge: pl.DataFrame | None


def build_myriadlama(
    sources: Sources,
    out: Path,
    *,
    n: int,
    model: Model | None = None,
    paraphrases: Path | None = None,
    fits: Callable[[str], bool] | None = None,
) -> Iterator[str]:
    """Write a set like MyriadLAMA into the new folder `out`; yields what was made and is missing.

    With a `model`, n paraphrases of each manual template are asked for, and its answers kept in
    `<out>.asked.jsonl`. With a sheet of `paraphrases`, those that it keeps are taken. `fits` says
    of an object's main label whether the object may stay. The folder has rows.parquet, the catalog
    entry <name>.yaml, and the sheet review.csv where there are paraphrases.

    Raises:
        InputError: a file is missing or unfit, the model does not answer, or `out` exists.
    """
    check_new(out)
    tables = _read(sources)
    make = partial(
        myriadlama.build,
        tables.facts,
        tables.labels,
        tables.manual,
        knowledge=tables.knowledge,
        n_paraphrases=n,
        fits=fits,
        relation_labels=_relation_labels(tables),
    )
    bare = make()  # before anything is asked and paid for
    kept, sheet, sentence = _paraphrases(tables.manual, bare, out, model, paraphrases)
    built = bare if kept is None else make(paraphrases=kept)
    publish(out, _files(out, built, sheet))
    yield from _summary(out, built)
    yield sentence
    yield from _missing(built, n)


def _read(sources: Sources) -> _Tables:
    facts = table(sources.facts, FACTS)
    manual = _manual(sources.templates)
    knowledge = table(sources.knowledge, FACTS) if sources.knowledge else None
    names = labels(sources.labels) if sources.labels else None
    if names is None and sources.dump is None:
        raise InputError("nothing names the entities; give --labels or --dump.")
    if sources.dump and sources.labels and sources.knowledge:
        raise InputError(
            "--dump replaces --labels or --knowledge, and both are given; leave one out."
        )
    if sources.dump and knowledge is None:
        relations = facts["relation_id"].unique().sort().to_list()
        subjects = frozenset(facts["subject_id"])
        take = Filter(sources.languages, relations, subjects=subjects, labelled=frozenset())
        knowledge = dump(sources.dump, take, "statements").triples.select(list(FACTS))
    if sources.dump and names is None:
        known = facts if knowledge is None else pl.concat([facts, knowledge])
        ids = frozenset().union(*(known[column] for column in FACTS))
        take = Filter(sources.languages, (), subjects=frozenset(), labelled=ids)
        names = dump(sources.dump, take, "names").labels
    assert names is not None
    return _Tables(facts, names, manual, knowledge)


def _manual(path: Path) -> pl.DataFrame:
    found = pl.DataFrame(texts_by_relation(path, "template"), MANUAL, orient="row")
    lacks = ": template {template!r} of {relation_id} has no %s; put it in."
    slots = {lacks % slot: ~pl.col("template").str.contains(slot, literal=True) for slot in SLOTS}
    refuse(found, slots, found.columns, str(path))
    return found


def _relation_labels(tables: _Tables) -> Mapping[str, str]:
    """The names of the relations, where the labels have them."""
    is_relation = pl.col("entity_id").is_in(tables.facts["relation_id"].implode())
    named = tables.labels.filter(is_relation).select("entity_id", pl.col("labels").list.first())
    return dict(
        named.drop_nulls().unique("entity_id", keep="first", maintain_order=True).iter_rows()
    )


def _paraphrases(
    manual: pl.DataFrame, bare: Built, out: Path, model: Model | None, sheet: Path | None
) -> tuple[pl.DataFrame | None, pl.DataFrame | None, str]:
    """What goes into the set, its review sheet, and a sentence about both."""
    if sheet is not None:
        given = rows(sheet)
        kept = reviewed(given)
        return kept, given, f"paraphrases: {kept.height:,} kept of the {given.height:,} in {sheet}"
    if model is None:
        return None, None, "paraphrases: none, since neither --endpoint nor --paraphrases was given"
    manual = manual.filter(_is_used(bare))
    marked = review_sheet(manual, asked(model, manual, out.with_name(f"{out.name}.asked.jsonl")))
    kept = reviewed(marked.filter(keep="yes"))
    n_open, n_no = ((marked["keep"] == answer).sum() for answer in ("", "no"))
    sentence = (
        f"paraphrases: {kept.height:,} of {model.name}, which no person has looked at; "
        f"{n_open:,} more wait for a yes, {n_no:,} cannot be used: edit {out / _SHEET} "
        "and give it with --paraphrases"
    )
    return kept, marked, sentence


def _is_used(built: Built) -> pl.Expr:
    return pl.col("relation_id").is_in(built.facts.relations["relation_id"].implode())


def _files(out: Path, built: Built, sheet: pl.DataFrame | None) -> dict[str, str | bytes]:
    made = built.rows()
    data = {"rows.parquet": parquet(made)}
    told = {} if sheet is None else {_SHEET: sheet.write_csv()}
    return {**data, f"{out.name}.yaml": entry_of_rows(out, data, made, built.facts), **told}


def _summary(out: Path, built: Built) -> Iterator[str]:
    facts = built.facts
    yield (
        f"{out}: {facts.relations.height} relations, {facts.templates.height:,} templates, "
        f"{facts.pairs.height:,} pairs"
    )
    yield from left_out(built.dropped)


def _missing(built: Built, n: int) -> Iterator[str]:
    short = built.missing.filter(_is_used(built), pl.col("n_missing") > 0)
    for relation_id, n_manual, n_found, n_missing in short.iter_rows():
        yield f"  {relation_id}: {n_missing:,} of {n_manual * n:,} missing, {n_found:,} there"


def one_token(model: str) -> Callable[[str], bool]:
    """Whether a label is one known token of the model (a folder, or an id on the hub).

    A label is encoded as it stands in a sentence, after a space. Source: BELIEF, footnote 6.

    Raises:
        InputError: the model has no tokenizer that can be loaded.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise InputError(
            f"--one-token {model}: its tokenizer cannot be loaded ({reason(error)}); "
            "give a folder with a tokenizer, or an id on the hub that can be reached."
        ) from error

    def fits(label: str) -> bool:
        ids = tokenizer(f" {label}", add_special_tokens=False).input_ids
        return len(ids) == 1 and ids[0] != tokenizer.unk_token_id

    return fits
