"""The review sheet, out and back."""

import io

import polars as pl
import pytest

from factsweep.operators.construction.paraphrase import (
    MANUAL,
    PARAPHRASES,
    SHEET,
    review_sheet,
    reviewed,
)
from factsweep.operators.errors import InputError
from tests.messages import naming

DIED = "[X] died in [Y]."
OTHER = "Where did [X] die? [Y]."


def sheet(*texts: str, template: str = DIED, min_distance: float = 0.25) -> pl.DataFrame:
    manual = pl.DataFrame([("P20", DIED), ("P20", OTHER)], schema=MANUAL, orient="row")
    rows = [("P20", template, text) for text in texts]
    said = pl.DataFrame(rows, schema=PARAPHRASES, orient="row")
    return review_sheet(manual, said, min_distance=min_distance)


@pytest.mark.parametrize(
    ("text", "keep", "reason"),
    [
        ("Life ended for [X] while staying near [Y].", "yes", ""),
        ("[X] died.", "no", "[Y] stands 0 times"),
        ("[X] died in [X].", "no", "[X] stands 2 times; [Y] stands 0 times"),
        ("[x] died in [Y].", "no", "[X] stands 0 times"),
        ("[X] Died in [Y]", "no", "a repetition"),
        (OTHER, "no", "a repetition"),
        ("[X] died in [Y], alas.", "", f"close to: {DIED}"),
        (
            "In which town has life ended for [X]? [Y].",
            "",
            "a question, where the manual template is a statement",
        ),
    ],
)
def test_review_sheet_says_what_is_suspicious(text: str, keep: str, reason: str) -> None:
    assert sheet(text).select("keep", "reason").row(0) == (keep, reason)


def test_review_sheet_later_of_two_close_paraphrases_is_marked() -> None:
    rows = sheet("Life ended for [X] near [Y].", "Life ended for [X] at [Y].", min_distance=0.4)
    assert rows["reason"].to_list() == ["", "close to: Life ended for [X] near [Y]."]


def test_review_sheet_at_the_very_distance_is_far_enough() -> None:
    assert sheet("[Y] [X]", min_distance=0.5)["keep"].item() == "yes"
    assert sheet("[Y] [X]", min_distance=0.51)["reason"].item() == f"close to: {DIED}"


def test_review_sheet_an_unusable_text_is_close_to_nothing() -> None:
    assert sheet("[X] passed away [X].", "[X] passed away, [Y].")["keep"].to_list() == ["no", "yes"]


@pytest.mark.parametrize("as_csv", [False, True])
def test_reviewed_gives_what_is_kept_with_its_corrected_text(as_csv: bool) -> None:
    rows = sheet("[X] passed away, [Y].", "[X] died.", "[X] died in [Y], alas.", "[X] left, [Y].")
    corrected = pl.Series("paraphrase", ["a [X] [Y]", "b [Y] [X]", "c [X] [Y]", "d [X] [Y]"])
    decided = rows.with_columns(corrected, keep=pl.Series(["TRUE", "Yes ", "no", "0"]))
    if as_csv:
        decided = pl.read_csv(io.StringIO(decided.write_csv()))
    assert reviewed(decided).rows() == [("P20", DIED, "a [X] [Y]"), ("P20", DIED, "b [Y] [X]")]


def test_reviewed_all_yes_gives_the_paraphrases_back() -> None:
    rows = sheet("[X] passed away, [Y].", "[X] left, [Y].").with_columns(keep=pl.lit(True))
    assert reviewed(rows).equals(rows.select(list(PARAPHRASES)))


def test_reviewed_undecided_row_is_named_as_a_spreadsheet_counts() -> None:
    csv = sheet("[X] passed away, [Y].", "[X] died in [Y], alas.").write_csv()
    with pytest.raises(InputError, match=naming("row 3", "''", "'[X]", "write")):
        reviewed(pl.read_csv(io.StringIO(csv)))


def test_reviewed_kept_text_without_its_slots_is_refused() -> None:
    rows = sheet("[X] died.").with_columns(keep=pl.lit("yes"))
    with pytest.raises(InputError, match=naming("row 2", "'[X] died.'")):
        reviewed(rows)


def test_reviewed_missing_column_is_named() -> None:
    with pytest.raises(InputError, match=naming("column keep")):
        reviewed(sheet().drop("keep"))


def test_reviewed_empty_sheet_keeps_nothing() -> None:
    assert reviewed(SHEET.to_frame()).schema == PARAPHRASES
