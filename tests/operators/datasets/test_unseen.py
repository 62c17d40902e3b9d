"""Characters that nobody sees are kept, removed or refused, and joiners are none of them."""

import polars as pl
import pytest

from factsweep.operators.datasets.facts import treated, unseen
from factsweep.operators.datasets.myriadlama import facts_from_rows
from factsweep.operators.errors import InputError
from tests.messages import naming

NAMES = ["relation", "template", "subject", "object"]


def facts(template: str, subject: str, label: str):
    row = ("capital", template, subject, label)
    return facts_from_rows(pl.LazyFrame([row], NAMES, orient="row"))


@pytest.mark.parametrize("hidden", ["\u200b", "\ufeff", "\u00ad", "\ue000", "\u200e"])
def test_unseen_characters_are_found_in_every_text(hidden: str) -> None:
    clean = ("[Y] of [X].", "France", "Paris")
    assert unseen(facts(*clean)).is_empty()
    for place, what in enumerate(("template", "pair", "pair")):
        texts = [*clean]
        texts[place] = texts[place][:2] + hidden + texts[place][2:]
        if place == 0:
            texts[place] = f"[Y]{hidden} of [X]."
        found = facts(*texts)
        assert unseen(treated(found, "keep")).height == 1
        with pytest.raises(InputError, match=naming(what, "benchmark.unseen=remove")):
            treated(found, "refuse")
        cleaned = treated(found, "remove")
        assert cleaned.pairs["subjects"].to_list() == [["France"]]
        assert [o["labels"] for o in cleaned.pairs["objects"][0]] == [["Paris"]]
        assert cleaned.templates["text"].to_list() == ["[Y] of [X]."]


def test_joiners_are_letters_of_their_languages() -> None:
    joined = facts("[Y] of [X].", "می\u200cخواهم", "\U0001f469\u200d\U0001f680")
    assert unseen(joined).is_empty()


def test_object_of_which_nothing_is_left_is_refused() -> None:
    with pytest.raises(InputError, match=naming("has no objects")):
        treated(facts("[Y] of [X].", "France", "\u200b"), "remove")
