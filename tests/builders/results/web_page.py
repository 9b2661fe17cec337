"""Reads an HTML page as a browser would, without one."""

from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"meta", "br", "hr"})


@dataclass
class Page(HTMLParser):
    """What a page holds: its elements, their attributes, and the text that people see."""

    elements: Counter[str] = field(default_factory=Counter)
    attributes: Counter[str] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)
    addresses: list[str] = field(default_factory=list)
    text: str = ""
    unbalanced: list[str] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    @classmethod
    def of(cls, content: str) -> "Page":
        made = cls()
        made.feed(content)
        made.close()
        made.unbalanced += made._open
        return made

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        for name, value in attrs:
            self.attributes[name] += 1
            if name == "class":
                self.classes.update((value or "").split())
            if name in {"src", "href", "action", "data", "poster", "srcset"}:
                self.addresses.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.text += data
