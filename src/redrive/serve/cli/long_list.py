"""Letters as `paper.letters_table` shows them, however many there are: a table measures every line before it prints the first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from rich.cells import cell_len, set_cell_size
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from redrive.model.letter import Letter
from redrive.model.query import last_name
from redrive.serve.cli.paper import STYLE, ago, letters_table, one_line, short_id

AT_ONCE = 1000
"""So many letters are measured before they are shown."""
_NAMES = ("id", "when", "source", "message id", "status", "tries", "failed with")
_NARROW = (0, 1, 2, 4, 6)
_ID, _SOURCE, _MESSAGE_ID, _STATUS, _TRIES, _ERROR = 0, 2, 3, 4, 5, 7
"""Where cells are; behind those of the columns comes what is bold of the last."""
_GAP = "   "
_LEAST_ERROR, _LEAST_SOURCE = 16, 6
_BOLD = Style(bold=True)
_STYLES = {status.value: Style.parse(style) for status, style in STYLE.items()}


def print_letters(paper: Console, letters: Iterable[Letter]) -> int:
    """Print a line for each letter, in memory that does not grow with them; how many there were."""
    letters = iter(letters)
    first = list(islice(letters, AT_ONCE + 1))
    if len(first) <= AT_ONCE:
        paper.print(letters_table(first, is_narrow=paper.width < 100))
        return len(first)
    lines, shown, some = _Lines(paper), 0, first
    while some:
        lines.print(some)
        shown += len(some)
        some = list(islice(letters, AT_ONCE))
    lines.end()
    return shown


class _Lines:
    """Lines of a table whose end nobody has seen. A column grows with what comes."""

    def __init__(self, paper: Console) -> None:
        self._out = paper.file
        self._width = paper.width
        self._rule = "─" if paper.encoding.startswith("utf") else "-"
        self._has_styles, self._has_colours = paper.color_system is not None, not paper.no_color
        is_narrow = paper.width < 100
        self._columns = _NARROW if is_narrow else tuple(range(len(_NAMES)))
        self._most = {_SOURCE: 20 if is_narrow else 40, _MESSAGE_ID: 24}
        self._widths = dict.fromkeys(self._columns, 0)

    def print(self, letters: Sequence[Letter]) -> None:
        """Print some letters; before the first ones what stands above the columns."""
        rows = [_cells(letter) for letter in letters]
        is_first = not any(self._widths.values())
        self._measure([_NAMES, *rows])
        if is_first:
            length = sum(self._widths.values()) + len(_GAP) * (len(self._columns) - 1)
            self._out.write(
                f"\n{self._line((*_NAMES, _NAMES[-1]), is_head=True)}\n {self._rule * min(length, self._width - 2)}\n"
            )
        self._out.write("".join(f"{self._line(row)}\n" for row in rows))

    def end(self) -> None:
        """Leave a line free, as below every table."""
        self._out.write("\n")

    def _measure(self, rows: Sequence[Sequence[str]]) -> None:
        *columns, last = self._columns
        for column in columns:
            needed = max(cell_len(row[column]) for row in rows)
            self._widths[column] = max(self._widths[column], min(needed, self._most.get(column, needed)))
        room = self._width - 2 - sum(self._widths[column] + len(_GAP) for column in columns)
        if room < _LEAST_ERROR:
            spare = min(_LEAST_ERROR - room, max(self._widths[_SOURCE] - _LEAST_SOURCE, 0))
            self._widths[_SOURCE] -= spare
            room += spare
        needed = max(cell_len(row[last]) for row in rows)
        self._widths[last] = max(1, min(room, max(self._widths[last], needed)))

    def _line(self, row: Sequence[str], *, is_head: bool = False) -> str:
        *columns, last = self._columns
        line = []
        for column in columns:
            text = _fitting(row[column], self._widths[column])
            space = " " * (self._widths[column] - cell_len(text))
            shown = self._styled(text, _BOLD if is_head or column == _ID else _STYLES.get(text) if column == _STATUS else None)
            line.append(f"{space}{shown}" if column == _TRIES else f"{shown}{space}")
        text = _fitting(row[last], self._widths[last])
        name = text[: len(row[_ERROR])]
        line.append(self._styled(name, _BOLD) + text[len(name) :])
        return f" {_GAP.join(line)}"

    def _styled(self, text: str, style: Style | None) -> str:
        if style is None or not self._has_styles:
            return text
        return (style if self._has_colours else style.without_color).render(text, color_system=ColorSystem.STANDARD)


def _cells(letter: Letter) -> tuple[str, ...]:
    name, told = one_line(last_name(letter.failure.type)), one_line(letter.failure.message)
    return (
        short_id(letter),
        ago(letter.dead_lettered_at),
        one_line(letter.source),
        one_line(letter.source_id),
        letter.status.value,
        str(letter.attempts),
        f"{name}: {told}" if told else name,
        name,
    )


def _fitting(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"
