"""A set like MyriadLAMA from facts, names, templates and, where there is one, a paraphraser."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from factsweep.operators.construction import myriadlama
from factsweep.operators.construction.myriadlama import FACTS, BuiltSet
from factsweep.operators.construction.paraphrase import (
    MANUAL,
    SLOTS,
    accepted_paraphrases,
    review_sheet,
)
from factsweep.operators.construction.set_card import Origin
from factsweep.operators.errors import InputError, reason
from factsweep.operators.schemas import refuse
from factsweep.pipeline.building.paraphraser import Model, request_paraphrases
from factsweep.pipeline.building.set_folder import (
    check_new,
    describe_omissions,
    describe_set,
    entry_of_rows,
    fields_of_rows,
    publish,
)
from factsweep.pipeline.inputs.files import read_labels as entity_names
from factsweep.pipeline.inputs.files import read_rows, read_table, texts_by_relation
from factsweep.pipeline.storage.tables import parquet

_SHEET = "review.csv"


def build_myriadlama(
    facts: Path,
    templates: Path,
    labels: Path,
    out: Path,
    *,
    n: int,
    knowledge: Path | None = None,
    model: Model | None = None,
    paraphrases: Path | None = None,
    fits: Callable[[str], bool] | None = None,
    origin: Origin | None = None,
) -> Iterator[str]:
    """Write a set like MyriadLAMA into the new folder `out`; yields lines on it and its omissions.

    `labels` names the entities, and may name the relations; `knowledge` has further objects. The
    tables of a knowledge base, entities.parquet and triples.parquet, are such files. A `model` is
    asked for n paraphrases of each manual template, and its answers saved in `<out>.asked.jsonl`.
    With a sheet of `paraphrases`, the accepted ones are taken. An object stays if its main label
    `fits`. The folder has rows.parquet, the catalog entry <name>.yaml, and the sheet review.csv
    where there are paraphrases; with an `origin` its card, and croissant.json.

    Raises:
        InputError: a file is missing or unfit, the model does not answer, or `out` exists.
    """
    check_new(out)
    manual = _read_manual(templates)
    make = partial(_read_builder(facts, labels, knowledge), manual, n_paraphrases=n, fits=fits)
    built = make()  # before any request is paid for
    good_paraphrases, sheet, note = _collect_paraphrases(manual, built, out, model, paraphrases)
    if good_paraphrases is not None:
        built = make(paraphrases=good_paraphrases)
    set_rows, set_facts = built.rows(), built.facts
    data = {"rows.parquet": parquet(set_rows)}
    sheets = {} if sheet is None else {_SHEET: sheet.write_csv()}
    fields = fields_of_rows(set_facts, data, set_rows.height)
    card = describe_set(out.name, {**data, **sheets}, origin, **fields)
    text = entry_of_rows(out, data, set_rows, set_facts, origin=origin)
    publish(out, {**data, **sheets, **card, f"{out.name}.yaml": text})
    yield (
        f"{out}: {set_facts.relations.height} relations, "
        f"{set_facts.templates.height:,} templates, {set_facts.pairs.height:,} pairs"
    )
    yield from describe_omissions(built.dropped)
    yield note
    short = built.missing.filter(_is_used_relation(built), pl.col("n_missing") > 0)
    for relation_id, n_manual, n_paraphrases, n_missing in short.iter_rows():
        n_wanted = n_manual * n
        yield f"  {relation_id}: {n_missing:,} of {n_wanted:,} missing, {n_paraphrases:,} there"


def _read_builder(facts: Path, labels: Path, knowledge: Path | None) -> Callable[..., BuiltSet]:
    """The function that builds a set of manual templates, with facts and names from files."""
    triples, further_triples = read_table(facts, FACTS), FACTS.to_frame()
    if knowledge is not None:  # of a large table no more than is needed
        subjects = {name: triples[name] for name in ("subject_id", "relation_id")}
        further_triples = read_table(knowledge, FACTS, subjects)
    ids = pl.concat(part[column] for part in (triples, further_triples) for column in FACTS)
    names = entity_names(labels, {"entity_id": ids.unique()})
    is_relation = pl.col("entity_id").is_in(triples["relation_id"].implode())
    relations = names.filter(is_relation).select("entity_id", pl.col("labels").list.first())
    relations = relations.drop_nulls().unique("entity_id", keep="first", maintain_order=True)
    options: dict[str, Any] = {
        "knowledge": further_triples,
        "relation_labels": dict(relations.iter_rows()),
    }
    return partial(myriadlama.build, triples, names, **options)


def _read_manual(path: Path) -> pl.DataFrame:
    templates = pl.DataFrame(texts_by_relation(path, "template"), MANUAL, orient="row")
    lacks = ": template {template!r} of {relation_id} has no %s; put it in."
    slots = {lacks % slot: ~pl.col("template").str.contains(slot, literal=True) for slot in SLOTS}
    refuse(templates, slots, templates.columns, str(path))
    return templates


def _collect_paraphrases(
    manual: pl.DataFrame, bare: BuiltSet, out: Path, model: Model | None, sheet_path: Path | None
) -> tuple[pl.DataFrame | None, pl.DataFrame | None, str]:
    """The paraphrases of the set, their review sheet, and a line on both."""
    if sheet_path is not None:
        sheet = read_rows(sheet_path)
        accepted = accepted_paraphrases(sheet)
        sizes = f"{accepted.height:,} kept of the {sheet.height:,} in {sheet_path}"
        return accepted, sheet, f"paraphrases: {sizes}"
    if model is None:
        return None, None, "paraphrases: none, since neither --endpoint nor --paraphrases was given"
    manual = manual.filter(_is_used_relation(bare))
    sheet = review_sheet(
        manual, request_paraphrases(model, manual, out.with_name(f"{out.name}.asked.jsonl"))
    )
    accepted = accepted_paraphrases(sheet.filter(keep="yes"))
    n_open, n_no = ((sheet["keep"] == answer).sum() for answer in ("", "no"))
    note = (
        f"paraphrases: {accepted.height:,} of {model.name}, which no person has looked at; "
        f"{n_open:,} more wait for a yes, {n_no:,} cannot be used: edit {out / _SHEET} "
        "and give it with --paraphrases"
    )
    return accepted, sheet, note


def _is_used_relation(built: BuiltSet) -> pl.Expr:
    return pl.col("relation_id").is_in(built.facts.relations["relation_id"].implode())


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
