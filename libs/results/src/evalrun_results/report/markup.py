"""Builds HTML in which every text is escaped unless it is `Markup`, because models write hostile texts. Pure."""

import html
import re
from collections.abc import Iterable
from typing import Final, TypeAlias


class Markup(str):
    """Trusted HTML, made by this module and from our literals, never from a run's outputs."""

    __slots__ = ()


Child: TypeAlias = "str | int | Markup | Iterable[Child] | None"

_VOID: Final = frozenset({"br", "hr", "meta", "rect", "line", "path"})

_BIDI: Final = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Marks that reorder text: a program could be shown in another order than it runs (CVE-2021-42574)."""
_SHOWN: Final = str.maketrans(
    {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"}
    | {0x7F: "\u2421"}
    | dict.fromkeys(range(0x80, 0xA0), "\ufffd")
    | {sign: f"\u27e8U+{ord(sign):04X}\u27e9" for sign in _BIDI}
)
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def escape_text(text: str) -> Markup:
    """Return a text as HTML with visible control characters, also valid inside quoted attributes."""
    plain = _SURROGATES.sub("\ufffd", text.replace("\r\n", "\n")).translate(_SHOWN)
    return Markup(html.escape(plain, quote=True))


def joined(*children: Child) -> Markup:
    """Concatenate the children. Texts are escaped and None is left out."""
    return Markup("".join(_pieces(children)))


def element(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """Return an element.

    Args:
        name: of the element; a literal.
        children: as `joined` takes them.
        attributes: names are literals: `class_` is class, `stroke_width` is stroke-width. None and False leave an
            attribute out, True writes its name alone.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in _VOID:
        return Markup(f"<{name}{written}>") if name in {"br", "hr", "meta"} else Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def make_scrollable(table: Markup) -> Markup:
    """Return a table that scrolls by itself if it is too wide. It takes the focus, so that keys scroll it too."""
    return element("div", table, class_="wide", tabindex=0, role="group", aria_label="table")


def _attribute(key: str, value: str | float | bool) -> str:
    name = key.rstrip("_").replace("_", "-")
    if isinstance(value, bool):
        return f" {name}" if value else ""
    shown = f"{value:.6g}" if isinstance(value, float) else escape_text(str(value))
    return f' {name}="{shown}"'


def _pieces(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        match child:
            case None:
                continue
            case Markup():
                yield child
            case str():
                yield escape_text(child)
            case int():
                yield str(child)
            case _:
                yield from _pieces(child)
