"""Characters that nobody sees are kept, removed or refused, and joiners are none of them."""

import polars as pl
import pytest

from factsweep.operators.datasets.contradictions import treated
from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.myriadlama import facts_from_rows
from factsweep.operators.errors import InputError
from tests.messages import naming

NAMES = ["relation", "template", "subject", "object"]


def facts(template: str, subject: str, label: str):
    row = ("capital", template, subject, label)
    return facts_from_rows(pl.LazyFrame([row], NAMES, orient="row"))


def count(found: Facts) -> int:
    return treated(found, "keep")[1]


@pytest.mark.parametrize("unseen", ["\u200b", "\ufeff", "\u00ad", "\ue000", "\u200e"])
def test_unseen_characters_are_found_in_every_text(unseen: str) -> None:
    clean = ("[Y] of [X].", "France", "Paris")
    assert count(facts(*clean)) == 0
    for place, what in enumerate(("template", "pair", "pair")):
        texts = [*clean]
        texts[place] = texts[place][:2] + unseen + texts[place][2:]
        if place == 0:
            texts[place] = f"[Y]{unseen} of [X]."
        found = facts(*texts)
        assert count(found) == 1
        with pytest.raises(InputError, match=naming(what, "benchmark.unseen=remove")):
            treated(found, "refuse")
        left, n = treated(found, "remove")
        assert n == 1
        assert left.pairs["subjects"].to_list() == [["France"]]
        assert [o["labels"] for o in left.pairs["objects"][0]] == [["Paris"]]
        assert left.templates["text"].to_list() == ["[Y] of [X]."]


def test_joiners_are_letters_of_their_languages() -> None:
    assert count(facts("[Y] of [X].", "می\u200cخواهم", "\U0001f469\u200d\U0001f680")) == 0


def test_object_of_which_nothing_is_left_is_refused() -> None:
    with pytest.raises(InputError, match=naming("has no objects")):
        treated(facts("[Y] of [X].", "France", "\u200b"), "remove")
