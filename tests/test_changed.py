"""`make quick` runs the tests of what was changed, however they import it."""

from pathlib import PurePath

from tests.changed import chosen


def test_nearest_tests_of_what_was_changed_are_chosen() -> None:
    found = chosen(
        [
            PurePath("operators/prompts/endings.py"),
            PurePath("operators/estimates/fluctuations/templates.py"),
        ]
    )
    assert "tests/operators/prompts/test_endings.py" in found  # imports it in its second line
    assert "tests/operators/estimates/test_extremes.py" in found  # imports what imports its user
