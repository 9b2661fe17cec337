"""Colours programs for people: Python, C and C++ alike, by one expression. Pure.

No parser and no package: what models write is often no program at all, the aggregator's image has no highlighter, and
the expression takes linear time on whatever it is given.
"""

import re
from collections.abc import Iterator
from typing import Final

from evalrun_results.report.markup import Markup, element, escaped, joined

_PYTHON: Final = (
    "False None True and as assert async await break class continue def del elif else except finally for from global "
    "if import in is lambda nonlocal not or pass raise return try while with yield match case self"
)
_C: Final = (
    "auto bool break case char class const continue default delete do double else enum extern false float for if "
    "include inline int long namespace new nullptr operator private public return short signed sizeof static struct "
    "switch template this true typedef typename unsigned using void while"
)
KEYWORDS: Final = {
    "python": frozenset(_PYTHON.split()),
    "c": frozenset(_C.split()),
    "cpp": frozenset(_C.split()),
}
_COMMENT: Final = {"python": r"#[^\n]*", "c": r"//[^\n]*|/\*(?s:.*?)(?:\*/|\Z)|^[ \t]*\#[^\n]*"}
_STRING: Final = {
    "python": r'"""(?s:.*?)(?:"""|\Z)|\'\'\'(?s:.*?)(?:\'\'\'|\Z)|"(?:\\.|[^"\\\n])*"?|\'(?:\\.|[^\'\\\n])*\'?',
    "c": r'"(?:\\.|[^"\\\n])*"?|\'(?:\\.|[^\'\\\n])*\'?',
}
_TOKENS: Final = {
    family: re.compile(
        rf"(?P<comment>{_COMMENT[family]})|(?P<string>{_STRING[family]})|(?P<number>\b\d[\w.]*)|(?P<word>[^\W\d]\w*)",
        re.MULTILINE,
    )
    for family in ("python", "c")
}
_FENCE: Final = re.compile(r"^[ \t]*```[ \t]*([\w+#-]*)[^\n]*$", re.MULTILINE)
_ALIASES: Final = {"py": "python", "python3": "python", "c++": "cpp", "cc": "cpp", "cxx": "cpp"}
_LOOKS_LIKE_CODE: Final = re.compile(
    r"^[ \t]*(?:def |class |import |from \w|return\b|for .*:|if .*:|#include)", re.MULTILINE
)


def highlighted(code: str, language: str = "python") -> Markup:
    """Return a program with its words in spans; an unknown language stays plain."""
    name = _ALIASES.get(language.lower(), language.lower())
    keywords = KEYWORDS.get(name)
    if keywords is None:
        return escaped(code)
    return joined(_spans(code, _TOKENS["python" if name == "python" else "c"], keywords))


def answer(text: str, language: str = "python") -> Markup:
    """Return a model's answer: fenced blocks as programs, what stands between them as text.

    Without a fence the whole is taken as a program where it looks like one (a completion that goes on after a prompt).
    """
    fences = list(_FENCE.finditer(text))
    if not fences:
        return _code(text, language) if _LOOKS_LIKE_CODE.search(text) else _prose(text)
    parts, start = [_prose(text[: fences[0].start()])], 0
    for place, fence in enumerate(fences):
        end = fences[place + 1].start() if place + 1 < len(fences) else len(text)
        start = fence.end()
        inside = place % 2 == 0
        parts.append(_code(text[start:end], fence[1] or language) if inside else _prose(text[start:end]))
    return joined(parts)


def _code(text: str, language: str) -> Markup:
    stripped = text.strip("\n")
    return element("pre", element("code", highlighted(stripped, language)), dir="ltr")


def _prose(text: str) -> Markup:
    return element("div", text.strip(), class_="prose", dir="auto") if text.strip() else Markup("")


def _spans(code: str, tokens: re.Pattern[str], keywords: frozenset[str]) -> Iterator[Markup]:
    done = 0
    for token in tokens.finditer(code):
        kind = token.lastgroup or ""
        if kind == "word" and token[0] not in keywords:
            continue
        yield escaped(code[done : token.start()])
        yield element("span", token[0], class_=_CLASS[kind])
        done = token.end()
    yield escaped(code[done:])


_CLASS: Final = {"comment": "c", "string": "s", "number": "n", "word": "k"}
