"""Characters that nobody sees: a right answer that lacks that of a label counts as wrong.

Unicode's categories of control, format, surrogate and private characters (Cc, Cf, Cs, Co), and
what it calls default ignorable beside these: selectors of variants, fillers and a joiner of
graphemes. Joiners of letters are none of them: Persian and Hindi are written with them.
"""

from dataclasses import replace
from typing import Literal

import polars as pl

from factsweep.operators.datasets.facts import Facts, checked
from factsweep.operators.errors import InputError

Unseen = Literal["keep", "remove", "refuse"]
_JOINERS = r"\u{200c}\u{200d}"
_IGNORABLE = r"\p{Default_Ignorable_Code_Point}"
_CHARACTER = rf"[\p{{Cc}}\p{{Cf}}\p{{Co}}{_IGNORABLE}--[{_JOINERS}]]"


def treated(facts: Facts, how: Unseen) -> tuple[Facts, int]:
    """The facts with these characters kept or removed, and how many texts hold one."""
    found = _texts(facts)
    if how == "keep" or found.is_empty():
        return facts, found.height
    if how == "refuse":
        raise InputError(_sentence(*found.row(0)))
    templates = facts.templates.with_columns(_seen(pl.col("text")))
    names = pl.col("subjects").list.eval(_filled(_seen(pl.element())))
    labels = pl.element().struct.field("labels").list.eval(_filled(_seen(pl.element())))
    objects = pl.col("objects").list.eval(pl.element().struct.with_fields(labels=labels))
    named = pl.element().struct.field("labels").list.len() > 0
    objects = objects.list.eval(pl.element().filter(named))
    pairs = facts.pairs.with_columns(subjects=names, objects=objects)
    return checked(replace(facts, templates=templates, pairs=pairs)), found.height


def _seen(text: pl.Expr) -> pl.Expr:
    return text.str.replace_all(_CHARACTER, "")


def _filled(texts: pl.Expr) -> pl.Expr:
    return texts.filter(texts.str.strip_chars() != "")


def _texts(facts: Facts) -> pl.DataFrame:
    """The texts that hold one, each with where it stands."""
    of_pair = pl.concat_str(pl.lit("pair "), "pair_id").alias("where")
    objects = facts.pairs.select(of_pair, pl.col("objects")).explode("objects")
    texts = (
        facts.templates.select(
            pl.concat_str(pl.lit("template "), "template_id").alias("where"), "text"
        ),
        facts.pairs.select(of_pair, text="subjects").explode("text"),
        objects.select("where", text=pl.col("objects").struct.field("labels")).explode("text"),
    )
    return pl.concat(texts).filter(pl.col("text").str.contains(_CHARACTER))


def _sentence(where: str, text: str) -> str:
    return (
        f"{where}: {text!a} holds a character that nobody sees, and no answer has; take it out, or "
        "let it be removed: benchmark.unseen=remove."
    )
