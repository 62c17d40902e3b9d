"""The heat map of shared knowledge: which number is in which square."""

import polars as pl
from matplotlib.axes import Axes

from factsweep.operators.tables.belief.figures import knowledge_sharing_figure

SHARES = pl.DataFrame(
    {"run": ["a", "a", "b"], "other": ["a", "b", "a"], "value": [1.0, 0.25, None]},
    schema={"run": pl.String, "other": pl.String, "value": pl.Float64},
)


def squares(axes: Axes) -> dict[tuple[str, str], str]:
    """The text of each square by the names of its row and column."""
    down = [text.get_text() for text in axes.get_yticklabels()]
    across = [text.get_text() for text in axes.get_xticklabels()]
    places = [(text.get_position(), text.get_text()) for text in axes.texts]
    return {(down[int(y)], across[int(x)]): text for (x, y), text in places}


def test_figure_square_of_row_and_column_is_the_rows_share() -> None:
    (axes,) = knowledge_sharing_figure(SHARES, "title").axes
    expected = {("a", "a"): "1.00", ("a", "b"): ".25", ("b", "a"): "–", ("b", "b"): "–"}
    assert squares(axes) == expected
    assert axes.images[0].get_array().filled(-1).tolist() == [[1, 0.25], [-1, -1]]
