"""`make quick` runs the tests of what was changed, however they import it."""

from pathlib import PurePath

from tests.changed import chosen


def test_nearest_tests_of_what_was_changed_are_chosen() -> None:
    found = chosen(
        [PurePath("operators/matching/normalise.py"), PurePath("operators/estimates/components.py")]
    )
    assert "tests/operators/matching/test_normalise.py" in found  # imports it in its second line
    assert "tests/operators/estimates/test_sampled.py" in found  # imports what imports its user
