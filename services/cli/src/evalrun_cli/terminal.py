"""The console on which commands show runs; it follows COLUMNS and NO_COLOR."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich.box import Box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from evalrun_cli.printable_text import printable, printable_lines

NAME_WIDTH: Final = 8
"""Minimum width of the column of names, in which longer names are folded."""
WIDEST: Final = 10_000


class Terminal(Console):
    """Spells out escape sequences in all output; colours and cursor moves stay rich's own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)


def open_console(
    *, stderr: bool = False, quiet: bool = False, width: int | None = None, environment: Mapping[str, str] = os.environ
) -> Terminal:
    """Return a console on stdout or stderr.

    Args:
        stderr: write to stderr.
        quiet: write nothing.
        width: number of columns if neither a terminal nor COLUMNS sets it; None: rich's default.
        environment: with NO_COLOR nothing is styled, bold text included.
    """
    console = Terminal(
        stderr=stderr, quiet=quiet, highlight=False, color_system=None if environment.get("NO_COLOR") else "auto"
    )
    if width is not None and not console.is_terminal and not environment.get("COLUMNS", "").isdigit():
        console.width = width
    return console


def whole_table(names: str, headings: Sequence[str], rows: Sequence[Sequence[str]], box: Box | None = None) -> Table:
    """Return a table of numbers that are never folded: 14.3 cut to 1 reads as a number too.

    Args:
        names: heading of the column of names, the only column that may be folded.
        headings: headings of all columns.
        rows: cells, in the order of the headings.
        box: lines around the table.
    """
    table = Table(box=box, pad_edge=box is not None)
    for number, heading in enumerate(headings):
        if heading == names:
            table.add_column(heading, overflow="fold", min_width=NAME_WIDTH)
        else:
            widest = max(
                cell_len(line) for cell in [heading, *(row[number] for row in rows)] for line in cell.split("\n")
            )
            table.add_column(heading, justify="right", no_wrap=True, min_width=widest)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def print_whole(console: Console, table: Table) -> None:
    """Print a table at its minimum width or wider, even on a narrower terminal: that breaks the lines, while rich would
    cut the cells."""
    least = console.measure(table, options=console.options.update(width=WIDEST)).minimum
    console.width = max(console.width, least)
    console.print(table)
