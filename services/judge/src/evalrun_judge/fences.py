"""Fenced code blocks of a Markdown text, as models write them. Pure.

CommonMark's rules, with three leniences for what models write: once there was a list item a fence may be indented to
any depth, a tagged fence inside an open block of the same kind opens the next block (the first was never closed), and a
fence at the end of a line of code closes a block that nothing else closes.
"""

import re

import msgspec

OPENING = re.compile(r"(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^\n]*)")

TAG_END = re.compile(r"[,:;{]")

LIST_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]")

OPENING_INDENT = 3
"""Without a list, what is indented deeper is no fence: most often it stands in a docstring."""

CLOSING_INDENT = 3
"""A closing fence may stand this much deeper than its opening one (CommonMark 0.31, 4.5): a docstring's own fences,
indented as its function's body, close nothing."""


class Block(msgspec.Struct, frozen=True, gc=False):
    """A fenced block."""

    tag: str
    """The first word after the opening fence, without braces and dots; empty if there is none."""
    body: str
    closed: bool


def blocks_of(text: str) -> list[Block]:
    """Return the blocks of a text, in order."""
    blocks: list[Block] = []
    opening: re.Match[str] | None = None
    body: list[str] = []
    in_list = False
    for raw in text.split("\n"):
        line = raw.removesuffix("\r")
        fence = _fence(line)
        if opening is None:
            in_list = in_list or LIST_ITEM.match(line) is not None
            if fence is not None and (in_list or len(fence["indent"]) <= OPENING_INDENT):
                opening, body = fence, []
        elif fence is None or not _same_kind(opening, fence):
            body.append(line)
        elif fence["info"].strip():
            blocks.append(_unclosed(opening, body))
            opening, body = fence, []
        elif len(fence["indent"]) <= len(opening["indent"]) + CLOSING_INDENT:
            blocks.append(_block(opening, body, closed=True))
            opening = None
        else:
            body.append(line)
    if opening is not None:
        blocks.append(_unclosed(opening, body))
    return blocks


def _fence(line: str) -> re.Match[str] | None:
    if "```" not in line and "~~~" not in line:
        return None  # most lines, at a third of what the pattern takes
    found = OPENING.fullmatch(line)
    if found is None or (found["fence"][0] == "`" and "`" in found["info"]):
        return None  # an inline code span
    return found


def _same_kind(opening: re.Match[str], fence: re.Match[str]) -> bool:
    return fence["fence"].startswith(opening["fence"])


def _unclosed(opening: re.Match[str], body: list[str]) -> Block:
    for index, line in enumerate(body):
        code, fence, rest = line.rstrip().rpartition(opening["fence"])
        if fence and not rest:
            return _block(opening, [*body[:index], code.rstrip(opening["fence"][0])], closed=True)
    return _block(opening, body, closed=False)


def _block(opening: re.Match[str], body: list[str], *, closed: bool) -> Block:
    words = opening["info"].strip().split(maxsplit=1)
    tag = TAG_END.split(words[0].lstrip("{"), maxsplit=1)[0].strip("{}.") if words else ""
    margin = opening["indent"]
    lines = [_without_margin(line, len(margin)) for line in body] if margin else body
    return Block(tag, "\n".join([*lines, ""]), closed)


def _without_margin(line: str, width: int) -> str:
    """Take up to `width` blanks off the front: the indentation that the fence itself has."""
    blanks = len(line) - len(line.lstrip(" \t"))
    return line[min(blanks, width) :]
