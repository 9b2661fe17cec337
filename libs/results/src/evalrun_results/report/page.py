"""The frame of every page: a single file without requests, with a policy that forbids scripts."""

from functools import lru_cache
from importlib.resources import files
from typing import Final

from evalrun_results.report.markup import Child, Markup, element, joined, make_scrollable

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Were an escape ever missed, the browser would still run nothing and fetch nothing."""


def page(title: str, *content: Child) -> str:
    """Return a whole HTML document."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", style_sheet()),
    )
    return joined(
        Markup("<!doctype html>\n"), element("html", head, element("body", element("main", *content)), lang="en"), "\n"
    )


@lru_cache(maxsize=1)
def style_sheet() -> Markup:
    """Return the style sheet beside this module."""
    return Markup(files("evalrun_results.report").joinpath("report.css").read_text(encoding="utf-8"))


def table(headings: list[str], rows: list[list[Child]], *, right: frozenset[int] = frozenset()) -> Markup:
    """Return a table that scrolls by itself if it is too wide. `right`: columns of numbers."""

    def cell(name: str, place: int, content: Child) -> Markup:
        of_a_column = {"scope": "col"} if name == "th" else {"data_label": headings[place] or None}
        return element(name, content, class_="right" if place in right else None, **of_a_column)

    head = element("tr", [cell("th", place, heading) for place, heading in enumerate(headings)])
    body = [element("tr", [cell("td", place, content) for place, content in enumerate(row)]) for row in rows]
    return make_scrollable(element("table", element("thead", head), element("tbody", body)))


def make_foldable(summary: Child, *inside: Child, is_open: bool = False) -> Markup:
    """Return a section that opens on demand."""
    return element("details", element("summary", summary), element("div", *inside, class_="inside"), open=is_open)
