"""Letters that Matplotlib's own font lacks: from another font, or named."""

import io

from matplotlib.figure import Figure

from factsweep.operators.tables.shared.canvas import save

_OTHERS = "⌚"  # in STIXGeneral, which comes with Matplotlib
_NOWHERE = "\U000e8000"


def test_letters_of_another_font_are_drawn_and_those_of_none_are_returned() -> None:
    svg, mixed, plain = io.StringIO(), io.StringIO(), io.StringIO()
    assert save(_titled("Acc@1"), plain, format="svg") == ""
    assert save(_titled(_OTHERS), svg, format="svg") == ""
    assert save(_titled(_OTHERS + _NOWHERE), mixed, format="svg") == _NOWHERE
    assert svg.getvalue().count("<svg") == 1
    for name, text in {"STIXGeneral": svg, "DejaVu": plain}.items():
        assert name in text.getvalue()
    assert "STIXGeneral" not in plain.getvalue()


def _titled(text: str) -> Figure:
    figure = Figure()
    figure.suptitle(text)
    return figure
