"""What is printed fits the terminal: wide Markdown tables wrap, or fall apart into several."""

import re
import shutil
from collections.abc import Iterator, Sequence
from itertools import groupby

Cells = Sequence[Sequence[str]]
_EDGE, _BETWEEN = 4, 3  # "| " and " |"; " | "
# An interval is one word: its ends stay in one line.
_ENDS, _GLUE = re.compile(r"(?<=\d) to (?=[-+]?\.?\d)"), "\ue000"
_LONG = 24  # a longer word, such as the name of a run, may go on in the next line


def shown(text: str) -> str:
    """A text for this terminal ($COLUMNS, else 80): its Markdown tables are made to fit."""
    width = shutil.get_terminal_size(fallback=(80, 24)).columns
    return "\n".join(_lines(text, width))


def _lines(text: str, width: int) -> Iterator[str]:
    for is_table, group in groupby(text.split("\n"), lambda line: line.startswith("|")):
        lines = [*group]
        if not is_table or max(map(len, lines)) <= width:
            yield from lines
            continue
        glued = (_ENDS.sub(f"{_GLUE}to{_GLUE}", line) for line in lines)
        cells = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in glued]
        # The head, and the rows but that of dashes below it.
        rows = [cells[0], *(r for r in cells[1:] if not all(set(c) <= set("-:") for c in r))]
        for number, columns in enumerate(_parts(rows, width)):
            if number:
                yield ""
            yield from _table([[row[each] for each in columns] for row in rows], width)


def _parts(cells: Cells, width: int) -> Iterator[list[int]]:
    """The columns of each table: as many as fit, wrapped between words; all name their rows."""
    first, *others = (_longest_word(column) for column in zip(*cells, strict=True))
    needs = [first, *(min(each, _LONG) for each in others)]
    names = _names(cells, needs, width)
    part = names
    for column in range(len(names), len(needs)):
        longer = [*part, column]
        wide = _EDGE + _BETWEEN * len(part) + sum(needs[i] for i in longer)
        if len(part) > len(names) and wide > width:
            yield part
            longer = [*names, column]
        part = longer
    yield part


def _names(cells: Cells, needs: Sequence[int], width: int) -> list[int]:
    """The first columns that together name each row; only the first, if they take half the room."""
    for n in range(1, len(needs)):
        if len({tuple(row[:n]) for row in cells}) == len(cells):
            names = [*range(n)]
            return names if sum(needs[:n]) + _BETWEEN * n <= width // 2 else [0]
    return [0]


def _longest_word(cells: Sequence[str]) -> int:
    return max(len(word) for cell in cells for word in (cell.split() or [" "]))


def _widths(columns: Cells, width: int) -> list[int]:
    """Each column's width: the widest give way first, down to their longest words, or into them."""
    room = width - _EDGE - _BETWEEN * (len(columns) - 1)
    words = [min(_longest_word(column), room // 2) for column in columns]
    widths = [max(1, *map(len, column)) for column in columns]
    for least in (words, [words[0], *(min(each, _LONG) for each in words[1:])]):
        while sum(widths) > room and widths != least:
            spare = [w if w > at_least else 0 for w, at_least in zip(widths, least, strict=True)]
            widths[spare.index(max(spare))] -= 1
    return widths


def _table(cells: Cells, width: int) -> Iterator[str]:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.MARKDOWN)
    columns = [*zip(*cells, strict=True)]
    for column, wide in zip(columns, _widths(columns, width), strict=True):
        table.add_column(Text(column[0]), width=wide, overflow="fold")  # a name is typed whole
    for row in cells[1:]:
        table.add_row(*map(Text, row))
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as printed:
        console.print(table)
    printed_lines = printed.get().replace(_GLUE, " ").split("\n")
    yield from (line.rstrip() for line in printed_lines if line.startswith("|"))
