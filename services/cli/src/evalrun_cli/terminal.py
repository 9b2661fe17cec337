"""The console on which commands show runs; it follows COLUMNS and NO_COLOR."""

import os
from collections.abc import Iterable, Mapping

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from evalrun_cli.printable_text import printable_lines


class Terminal(Console):
    """Spells out escape sequences in whatever it shows; colours and cursor moves stay rich's own."""

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
        width: columns where neither a terminal nor COLUMNS says; None: rich's own.
        environment: with NO_COLOR nothing is styled, bold text included.
    """
    console = Terminal(
        stderr=stderr, quiet=quiet, highlight=False, color_system=None if environment.get("NO_COLOR") else "auto"
    )
    if width is not None and not console.is_terminal and not environment.get("COLUMNS", "").isdigit():
        console.width = width
    return console
