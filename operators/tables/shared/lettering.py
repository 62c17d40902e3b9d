"""The letters of figures: Matplotlib's own font lacks those of Chinese, Japanese and more."""

import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MISSING = re.compile(r"Glyph (\d+) .* missing from")
_NO_FONT = "Last Resort"  # a box for every letter


def save(figure: "Figure", out: IO[Any], **how: Any) -> str:
    """Save a figure, and once more in fonts that have what is missing, if any here does.

    Returns the letters that no font has: there is a box in their place.
    """
    if missing := _saved(figure, out, **how):
        from matplotlib.text import Text

        families = _families(missing)
        for text in figure.findobj(Text):
            text.set_fontfamily([*text.get_fontfamily(), *families])
        if families:
            out.seek(0)
            out.truncate()
            missing = _saved(figure, out, **how)
    return missing


def _saved(figure: "Figure", out: IO[Any], **how: Any) -> str:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        figure.savefig(out, **how)
    missing = {found[1] for each in said if (found := _MISSING.match(str(each.message)))}
    for each in said:
        if not _MISSING.match(str(each.message)):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return "".join(sorted(chr(int(number)) for number in missing))


def _families(letters: Iterable[str]) -> list[str]:
    """Installed fonts that have these letters: each has one that those before it lack."""
    from matplotlib.font_manager import fontManager
    from matplotlib.ft2font import FT2Font

    wanted, found = {*map(ord, letters)}, []
    for font in sorted(fontManager.ttflist, key=lambda each: (each.name, each.fname)):
        if not wanted:
            break
        has = set() if font.name.startswith(_NO_FONT) else {*_charmap(FT2Font, Path(font.fname))}
        if wanted & has:
            found.append(font.name)
            wanted -= has
    return found


def _charmap(kind: Any, path: Path) -> Iterable[int]:
    try:
        return kind(str(path)).get_charmap()  # type: ignore[no-any-return]
    except (OSError, RuntimeError):  # a font that was removed, or that it cannot read
        return ()
