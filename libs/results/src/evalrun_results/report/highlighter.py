"""Colours programs for people, with a regular expression per language. Pure.

No parser and no package: models often write texts that are no programs, the aggregator's image has no highlighter, and
the expression takes linear time on any text.
"""

import re
from collections.abc import Iterator
from typing import Final

from evalrun_registry.languages import LANGUAGES
from evalrun_results.report.markup import Markup, element, escape_text, joined

_KEYWORDS: Final = {name: frozenset(language.syntax.keywords.split()) for name, language in LANGUAGES.items()}
_TOKENS: Final = {
    name: re.compile(
        rf"(?P<comment>{language.syntax.comment})|(?P<string>{language.syntax.string})"
        r"|(?P<number>\b\d[\w.]*)|(?P<word>[^\W\d]\w*)",
        re.MULTILINE,
    )
    for name, language in LANGUAGES.items()
}
_TAGS: Final = {name: re.compile(language.tags) for name, language in LANGUAGES.items()}
_STARTS: Final = {
    name: re.compile(rf"^[ \t]*(?:{language.line_starts})", re.MULTILINE)
    for name, language in LANGUAGES.items()
    if language.line_starts
}
_FENCE: Final = re.compile(r"^[ \t]*```[ \t]*([\w+#-]*)[^\n]*$", re.MULTILINE)


def guess_language(text: str) -> str | None:
    """Return the language that a line of the text begins like, or None.

    Later languages are tried first, and Python last: its words begin lines of other languages too.
    """
    return next((name for name in reversed(_STARTS) if _STARTS[name].search(text)), None)


def highlight_code(code: str, language: str = "python") -> Markup:
    """Return a program with its words in spans; an unknown language stays plain."""
    tag = language.lower()
    name = next((name for name, tags in _TAGS.items() if tags.fullmatch(tag)), None)
    if name is None:
        return escape_text(code)
    return joined(_spans(code, _TOKENS[name], _KEYWORDS[name]))


def answer(text: str, language: str = "python") -> Markup:
    """Return a completion with fenced blocks as programs and the rest as text.

    Without a fence the whole text is highlighted if it looks like a program (a completion that continues a prompt).
    """
    fences = list(_FENCE.finditer(text))
    if not fences:
        return _prose(text) if guess_language(text) is None else _code(text, language)
    parts, start = [_prose(text[: fences[0].start()])], 0
    for place, fence in enumerate(fences):
        end = fences[place + 1].start() if place + 1 < len(fences) else len(text)
        start = fence.end()
        inside = place % 2 == 0
        parts.append(_code(text[start:end], fence[1] or language) if inside else _prose(text[start:end]))
    return joined(parts)


def _code(text: str, language: str) -> Markup:
    stripped = text.strip("\n")
    return element("pre", element("code", highlight_code(stripped, language)), dir="ltr")


def _prose(text: str) -> Markup:
    return element("div", text.strip(), class_="prose", dir="auto") if text.strip() else Markup("")


def _spans(code: str, tokens: re.Pattern[str], keywords: frozenset[str]) -> Iterator[Markup]:
    done = 0
    for token in tokens.finditer(code):
        kind = token.lastgroup or ""
        if kind == "word" and token[0] not in keywords:
            continue
        yield escape_text(code[done : token.start()])
        yield element("span", token[0], class_=_CLASS[kind])
        done = token.end()
    yield escape_text(code[done:])


_CLASS: Final = {"comment": "c", "string": "s", "number": "n", "word": "k"}
