"""HTML tables that notebooks display. Pure."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; every text is escaped, because names come from untrusted data."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_lines(lines: Iterable[str], *, bold: bool = False) -> str:
    """Return one paragraph for each line."""
    opened, closed = ("<b>", "</b>") if bold else ("", "")
    return "".join(f"<p>{opened}{escape(line)}{closed}</p>" for line in lines)
