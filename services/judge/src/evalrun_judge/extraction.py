"""From a model's answer to a program: one rule for every problem family, and the guardrails it met.

Pure, and it never compiles anything: whether a text without any block is code is for the sandbox's own interpreter or
compiler to say (`Extraction.must_compile`). CPython's compiler can be made to crash by hostile text, and a crash here
would take every verdict in flight with it.
"""

import re
from collections.abc import Callable
from enum import StrEnum

import msgspec

from evalrun_judge.fences import Block, blocks_of

END_OF_THOUGHT = "</think>"


class SubmissionMode(StrEnum):
    """How an answer relates to the problem's prompt."""

    AUTO = "auto"
    APPEND = "append"
    STANDALONE = "standalone"


class ExtractionMethod(StrEnum):
    """Where the program was found."""

    VERBATIM = "verbatim"
    TAGGED_BLOCK = "tagged_block"
    UNTAGGED_BLOCK = "untagged_block"
    UNCLOSED_BLOCK = "unclosed_block"
    WHOLE_TEXT = "whole_text"
    NONE = "none"


class Guardrail(StrEnum):
    """What was odd about an answer."""

    NOTHING_TO_RUN = "nothing_to_run"
    NO_CODE_FOUND = "no_code_found"
    ANSWER_CUT = "answer_cut"
    TRUNCATED_GENERATION = "truncated_generation"


class Extraction(msgspec.Struct, frozen=True):
    """The program of an answer."""

    code: str
    """Without prompt or harness; empty where there is nothing to run."""
    method: ExtractionMethod
    guardrails: tuple[Guardrail, ...] = ()
    must_compile: bool = False
    """The whole text is taken for code only if it compiles; if it does not, there was no code: see `without_code`."""

    def without_code(self) -> "Extraction":
        """Give what this extraction is once its text has turned out not to compile."""
        return Extraction("", ExtractionMethod.NONE, (*self.guardrails, Guardrail.NO_CODE_FOUND))


def extract(
    text: str, *, language: str, mode: SubmissionMode, truncated: bool = False, max_characters: int = 0
) -> Extraction:
    """Find the program in an answer.

    Args:
        text: the answer.
        language: the problem's language, e.g. `python`.
        mode: `append` and `standalone` answers are taken as they stand.
        truncated: the generation was stopped at its token limit.
        max_characters: longer answers are cut first; 0: no limit.
    """
    guardrails = [Guardrail.TRUNCATED_GENERATION] if truncated else []
    if 0 < max_characters < len(text):
        text = text[:max_characters]
        guardrails.append(Guardrail.ANSWER_CUT)
    if mode is SubmissionMode.AUTO:
        text = text.partition(END_OF_THOUGHT)[2] if END_OF_THOUGHT in text else text
    if not text.strip():
        return Extraction("", ExtractionMethod.NONE, (*guardrails, Guardrail.NOTHING_TO_RUN))
    if mode is not SubmissionMode.AUTO:
        return Extraction(text, ExtractionMethod.VERBATIM, tuple(guardrails))
    code, method = _choose(blocks_of(text), language)
    if code is not None:
        return Extraction(code, method, tuple(guardrails))
    return Extraction(text, ExtractionMethod.WHOLE_TEXT, tuple(guardrails), must_compile=True)


def _choose(blocks: list[Block], language: str) -> tuple[str | None, ExtractionMethod]:
    """Take the last closed tagged block, else the last closed untagged one, else an unclosed last one."""
    tagged = _last_closed(blocks, lambda tag: _speaks(tag, language))
    if tagged is not None:
        return tagged.body, ExtractionMethod.TAGGED_BLOCK
    untagged = _last_closed(blocks, lambda tag: not tag)
    if untagged is not None:
        return untagged.body, ExtractionMethod.UNTAGGED_BLOCK
    unclosed = blocks[-1] if blocks and not blocks[-1].closed else None
    if unclosed is not None and unclosed.body.strip() and (not unclosed.tag or _speaks(unclosed.tag, language)):
        return unclosed.body, ExtractionMethod.UNCLOSED_BLOCK
    return None, ExtractionMethod.NONE


def _last_closed(blocks: list[Block], wanted: Callable[[str], bool]) -> Block | None:
    """Give the last closed block of a wanted tag with something in it: an empty one is never the answer."""
    for block in reversed(blocks):
        if block.closed and wanted(block.tag) and block.body.strip():
            return block
    return None


_TAGS: dict[str, re.Pattern[str]] = {
    "python": re.compile(r"(?:i?python|py|pypy|cpython)[\d.]*"),
    "c": re.compile(r"(?:c|gnu)(?:\d\d|89|9x|1x|2x)?"),
    "cpp": re.compile(r"(?:c\+\+|cpp|cc|cxx|gnu\+\+|g\+\+)(?:\d\w)?"),
}
"""How models spell a language after a fence, in lower case; another language is spelt as itself only."""


def _speaks(tag: str, language: str) -> bool:
    """Say whether a fence's tag names the language; a file name names it by its ending."""
    name = tag.lower()
    pattern = _TAGS.get(language)
    if pattern is None:
        return name == language.lower()
    return pattern.fullmatch(name) is not None or pattern.fullmatch(name.rpartition(".")[2]) is not None
