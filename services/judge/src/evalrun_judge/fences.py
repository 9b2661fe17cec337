"""Finds fenced code blocks in a Markdown text, as models write them. Pure.

The rules are CommonMark's, with leniences for models: after a list item a fence may be indented to any depth; an
opening fence may follow a few words on its line; a tagged fence inside an open block of the same kind opens the next
block (the first was never closed); a fence inside a triple-quoted string closes nothing; a closing fence may be
followed by prose or special tokens, stand at the end of a line of code, or have lost a backtick; a quoted block counts
like an unquoted block; and a block that only wraps other blocks is replaced by them.
"""

import re

import msgspec

OPENING = re.compile(r"(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^\n]*)")

AFTER_WORDS = re.compile(r"[^`~]+(?P<fence>`{3,})[ \t]*(?P<info>[\w+#.-]+)")
"""Matches `Solution: ```python` and `<answer>```python`."""

TAG_END = re.compile(r"[,:;{]")

LIST_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]")

QUOTED_FENCE = re.compile(r"^ {0,3}> ?[ \t]*(?:`{3}|~{3})", re.MULTILINE)
QUOTE = re.compile(r" {0,3}>(?!>>) ?")

SPECIAL_TOKEN = re.compile(r"<\|[^<>|\n]{1,64}\|>|</s>|<eos>|<end_of_turn>|<\uff5c[^<>\uff5c\n]{1,64}\uff5c>")
"""Matches tokens such as `<|im_end|>`, which stand at the end of a completion."""

TRIPLE_QUOTE = re.compile(r"#|\\.|\"\"\"|'''|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
"""Matches what may begin or end a triple-quoted string in a line of Python, and what may hide such a mark."""

WRAPPERS = frozenset({"", "markdown", "md", "text", "txt", "plaintext"})
"""Tags of blocks that may only wrap other blocks."""

OPENING_INDENT = 3
"""Without a list, a deeper indented mark is no fence: most often it stands in a docstring."""

CLOSING_INDENT = 3
"""A closing fence may stand this much deeper than its opening fence (CommonMark 0.31, 4.5): a docstring's own fences,
indented as its function's body, close nothing."""

PROSE_WORDS = 3
"""This many words after a fence are a sentence, not the tag of a next block."""

STRINGS_LOOKED_AT, STRING_LINES = 50, 200
"""Limits of the search for the end of a triple-quoted string that contains a fence: searches per text, and lines per
search."""


class Block(msgspec.Struct, frozen=True, gc=False):
    tag: str
    """The first word after the opening fence, without braces and dots; empty if there is none."""
    body: str
    closed: bool


def find_blocks(text: str) -> list[Block]:
    """Return the blocks of a text, in order."""
    if QUOTED_FENCE.search(text):
        text = "\n".join(QUOTE.sub("", line, count=1) for line in text.split("\n"))
    found: list[Block] = []
    for block in _Reader(text).blocks():
        inner = _Reader(block.body).blocks() if block.tag.lower() in WRAPPERS and "```" in block.body else []
        found += inner if any(each.tag for each in inner) else [block]
    return found


def cut_at_first_fence(text: str) -> str:
    """Return the text before the first fence, or the whole text without a fence."""
    lines = text.split("\n")
    first = next(
        (number for number, line in enumerate(lines) if _fence(line.removesuffix("\r")) is not None), len(lines)
    )
    return "\n".join(lines[:first])


class _Fence(msgspec.Struct, frozen=True, gc=False):
    indent: str
    fence: str
    info: str


class _Reader:
    def __init__(self, text: str) -> None:
        self._lines = [line.removesuffix("\r") for line in text.split("\n")]
        self._looks_left = STRINGS_LOOKED_AT

    def blocks(self) -> list[Block]:
        """Return the blocks, in order."""
        blocks: list[Block] = []
        opening: _Fence | None = None
        body: list[str] = []
        quote, string_end = "", -1
        in_list = False
        for number, line in enumerate(self._lines):
            fence = _fence(line)
            if opening is None:
                in_list = in_list or LIST_ITEM.match(line) is not None
                if fence is None:
                    fence = _fence_after_words(line)
                if fence is not None and (in_list or len(fence.indent) <= OPENING_INDENT):
                    opening, body, quote = fence, [], ""
                continue
            if fence is not None and fence.fence.startswith(opening.fence) and number > string_end:
                if quote:
                    string_end = self._end_of_string(number, quote, opening)
                if number > string_end:
                    next_opening = _opens_next(fence)
                    if next_opening:
                        blocks.append(_make_unclosed_block(opening, body))
                        opening, body, quote = fence, [], ""
                        continue
                    if len(fence.indent) <= len(opening.indent) + CLOSING_INDENT:
                        blocks.append(_block(opening, body, closed=True))
                        opening = None
                        continue
            body.append(line)
            if '"""' in line or "'''" in line:
                quote = _quote_after(line, quote)
        if opening is not None:
            blocks.append(_make_unclosed_block(opening, body))
        return blocks

    def _end_of_string(self, number: int, quote: str, opening: _Fence) -> int:
        """Return the line in which the triple-quoted string around a fence ends; -1 if the fence is the block's own.

        Fences inside a string come in pairs whose second fence is bare, or all of them are bare.
        """
        if not self._looks_left:
            return -1
        self._looks_left -= 1
        inner_is_open, tagged = False, False
        for at in range(number, min(len(self._lines), number + STRING_LINES)):
            line = self._lines[at]
            fence = _fence(line)
            if fence is not None and fence.fence.startswith(opening.fence):
                if inner_is_open and fence.info:
                    return -1
                inner_is_open, tagged = not inner_is_open, tagged or bool(fence.info)
            elif quote in line:
                return -1 if inner_is_open and tagged else at
        return -1


def _fence(line: str) -> _Fence | None:
    if "```" not in line and "~~~" not in line:
        # This check sorts out most lines, in a third of the pattern's time.
        return None
    found = OPENING.fullmatch(line)
    if found is None or (found["fence"][0] == "`" and "`" in found["info"]):
        # The line has no fence, or only an inline code span.
        return None
    return _Fence(found["indent"], found["fence"], SPECIAL_TOKEN.split(found["info"], maxsplit=1)[0].strip())


def _fence_after_words(line: str) -> _Fence | None:
    if "```" not in line or line.count("`") > 2 * len("```"):
        return None
    found = AFTER_WORDS.fullmatch(line.rstrip())
    return None if found is None else _Fence("", found["fence"], found["info"])


def _opens_next(fence: _Fence) -> bool:
    """Return whether a fence within an open block opens the next block, judging by the text after it."""
    words = fence.info.split()
    return bool(words) and (len(words) < PROSE_WORDS or any(sign in fence.info for sign in "={:"))


def _quote_after(line: str, quote: str) -> str:
    """Return the mark of the triple-quoted string that is open after a line of code; empty if no string is open."""
    at = 0
    while True:
        if quote:
            end = line.find(quote, at)
            if end < 0:
                return quote
            quote, at = "", end + len(quote)
        found = TRIPLE_QUOTE.search(line, at)
        if found is None or found[0] == "#":
            return ""
        quote, at = (found[0] if found[0] in ('"""', "'''") else ""), found.end()


def _make_unclosed_block(opening: _Fence, body: list[str]) -> Block:
    for index, line in enumerate(body):
        code, fence, rest = SPECIAL_TOKEN.split(line, maxsplit=1)[0].rstrip().rpartition(opening.fence)
        if fence and not rest:
            return _block(opening, [*body[:index], code.rstrip(opening.fence[0])], closed=True)
    last = next((index for index in range(len(body) - 1, -1, -1) if body[index].strip()), -1)
    if last >= 0 and body[last].strip() in (opening.fence[0], 2 * opening.fence[0]):
        return _block(opening, body[:last], closed=True)
    return _block(opening, body, closed=False)


def _block(opening: _Fence, body: list[str], *, closed: bool) -> Block:
    words = opening.info.split(maxsplit=1)
    tag = TAG_END.split(words[0].lstrip("{"), maxsplit=1)[0].strip("{}.") if words else ""
    margin = opening.indent
    lines = [_strip_margin(line, len(margin)) for line in body] if margin else body
    return Block(tag, "\n".join([*lines, ""]).removeprefix("\ufeff"), closed)


def _strip_margin(line: str, width: int) -> str:
    """Remove up to `width` blanks from the front: the indentation of the fence itself."""
    blanks = len(line) - len(line.lstrip(" \t"))
    return line[min(blanks, width) :]
