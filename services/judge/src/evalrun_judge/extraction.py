"""Extracts the program from a completion, by a single rule for all families, and records the guardrails that applied.

Pure, and it never compiles anything: the sandbox's own interpreter or compiler decides whether a text without any block
is code (`Extraction.must_compile`). Hostile text can crash CPython's compiler, and a crash here would end every verdict
in flight.
"""

import re
from collections.abc import Callable
from enum import StrEnum

import msgspec

from evalrun_judge.bare_code import defines, extract_definitions, looks_whole
from evalrun_judge.fences import SPECIAL_TOKEN, Block, cut_at_first_fence, find_blocks
from evalrun_registry.languages import LANGUAGES

START_OF_THOUGHT, END_OF_THOUGHT = "<think>", "</think>"
MARKS_LOOKED_AT = 20
"""Maximum number of marks that are examined, because each may cost a look at all of the text before it."""
MAX_TOKEN = 100
"""Maximum characters of a special token, with some blanks after it."""
FINAL_CHANNEL = "<|channel|>final<|message|>"
"""In the format that gpt-oss writes, the final text follows this mark."""
MARKED = re.compile(
    r"(?:\[PYTHON\]|\[BEGIN\]|<code>|<answer>|<solution>)[ \t]*\n(?P<code>.*?)"
    r"(?:\[/PYTHON\]|\[DONE\]|\[END\]|</code>|</answer>|</solution>|\Z)",
    re.DOTALL,
)
"""Matches marks around a program that are no fences."""


class SubmissionMode(StrEnum):
    """Relation of a completion to the problem's prompt."""

    AUTO = "auto"
    APPEND = "append"
    STANDALONE = "standalone"


class ExtractionMethod(StrEnum):
    """Place in the completion where the program was found."""

    VERBATIM = "verbatim"
    TAGGED_BLOCK = "tagged_block"
    UNTAGGED_BLOCK = "untagged_block"
    UNCLOSED_BLOCK = "unclosed_block"
    WHOLE_TEXT = "whole_text"
    NONE = "none"


class Guardrail(StrEnum):
    """Irregularity of a completion."""

    NOTHING_TO_RUN = "nothing_to_run"
    NO_CODE_FOUND = "no_code_found"
    ANSWER_CUT = "answer_cut"
    TRUNCATED_GENERATION = "truncated_generation"


class Extraction(msgspec.Struct, frozen=True):
    """The program of a completion."""

    code: str
    """The program without prompt or harness; empty if there is nothing to run."""
    method: ExtractionMethod
    guardrails: tuple[Guardrail, ...] = ()
    must_compile: bool = False
    """Whether the whole text counts as code only if it compiles. If it does not, there was no code; see `drop_code`."""
    otherwise: str = ""
    """Text that is judged instead of `code` if `code` does not compile; empty: none."""

    def fall_back(self) -> "Extraction":
        """Return the extraction that is judged after `code` did not compile."""
        return Extraction(self.otherwise, self.method, self.guardrails, self.must_compile)

    def drop_code(self) -> "Extraction":
        """Return an extraction without code, for a text that does not compile."""
        return Extraction("", ExtractionMethod.NONE, (*self.guardrails, Guardrail.NO_CODE_FOUND))


def extract(
    text: str,
    *,
    language: str,
    mode: SubmissionMode,
    truncated: bool = False,
    max_characters: int = 0,
    entry_point: str = "",
) -> Extraction:
    """Find the program in a completion.

    Args:
        text: the completion.
        language: the problem's language, e.g. `python`.
        mode: `append` and `standalone` completions are taken as they are.
        truncated: the generation was stopped at its token limit.
        max_characters: longer completions are cut first; 0: no limit.
        entry_point: the name that the tests call. Blocks that define it are preferred to later blocks that do not,
            which are examples of its use, or tests.
    """
    guardrails = [Guardrail.TRUNCATED_GENERATION] if truncated else []
    if 0 < max_characters < len(text):
        text = text[:max_characters]
        guardrails.append(Guardrail.ANSWER_CUT)
    if mode is SubmissionMode.AUTO:
        text = _answer_in(text)
    if not text.strip():
        return Extraction("", ExtractionMethod.NONE, (*guardrails, Guardrail.NOTHING_TO_RUN))
    if mode is not SubmissionMode.AUTO:
        return Extraction(text, ExtractionMethod.VERBATIM, tuple(guardrails))
    code, method = _choose(find_blocks(text), language, entry_point, truncated=truncated)
    opening = LANGUAGES[language].opening
    if opening and code is not None:
        code = _open(code, opening)
    sought = entry_point if language == "python" else ""
    if (
        sought
        and code is not None
        and not defines(code, sought)
        and defines(opened := cut_at_first_fence(text), sought)
    ):
        # The prompt, or a stop sequence, contains the opening fence.
        return Extraction(
            opened,
            ExtractionMethod.WHOLE_TEXT,
            tuple(guardrails),
            must_compile=True,
            otherwise=_find_rest(opened, sought, opened),
        )
    if code is not None:
        sought = sought if method is ExtractionMethod.UNCLOSED_BLOCK else ""
        return Extraction(code, method, tuple(guardrails), otherwise=_find_rest(code, sought, code))
    marked = MARKED.search(text)
    code = marked["code"] if marked is not None and marked["code"].strip() else text
    if opening:
        begin = code.find(opening[:2])
        if begin < 0:
            return Extraction("", ExtractionMethod.NONE, (*guardrails, Guardrail.NO_CODE_FOUND))
        code = code[begin:]
    rest = _find_rest(text, sought, code)
    return Extraction(code, ExtractionMethod.WHOLE_TEXT, tuple(guardrails), must_compile=True, otherwise=rest)


def _open(code: str, opening: str) -> str:
    """Return code that begins with the language's opening tag (`<?php`), because any text before the tag is printed."""
    return code.lstrip() if opening[:2] in code else f"{opening}\n{code}"


def _find_rest(text: str, sought: str, code: str) -> str:
    """Return the definitions in a text that are tried if `code` does not compile."""
    rest = extract_definitions(text, sought) if sought else ""
    return "" if rest.strip() == code.strip() else rest


def _answer_in(text: str) -> str:
    """Return a completion without its thoughts, byte order mark and the special tokens at its end."""
    _, final, after = text.rpartition(FINAL_CHANNEL)
    text = _strip_thoughts(after if final else text.removeprefix("\ufeff")).removeprefix("\ufeff")
    end = len(text)
    for _ in range(MARKS_LOOKED_AT):
        start = _find_token_before(text, end)
        if start is None:
            break
        end = start
    return text[:end]


def _find_token_before(text: str, end: int) -> int | None:
    """Return the start of the special token that ends at a position, ignoring blanks, or None."""
    tail = text[max(0, end - MAX_TOKEN) : end].rstrip()
    if not tail.endswith(">"):
        return None
    last = next((match for match in SPECIAL_TOKEN.finditer(tail) if match.end() == len(tail)), None)
    return None if last is None else max(0, end - MAX_TOKEN) + last.start()


def _strip_thoughts(text: str) -> str:
    """Return the text after the model's thoughts, or the whole text if it holds no finished thought.

    If the prompt contains `<think>`, the completion has only the end mark, which then stands at a line's start or end,
    and in no code block. A program may well mention `</think>`.
    """
    if text.lstrip().startswith(START_OF_THOUGHT):
        _, mark, after = text.partition(END_OF_THOUGHT)
        return after if mark else text
    at = text.find(END_OF_THOUGHT)
    for _ in range(MARKS_LOOKED_AT):
        if at < 0:
            return text
        end = at + len(END_OF_THOUGHT)
        line = text[text.rfind("\n", 0, at) + 1 : at]
        if not line.strip() or text[end : end + 1] in ("", "\n", "\r"):
            blocks = find_blocks(text[:at])
            if not blocks or blocks[-1].closed:
                return text[end:]
        at = text.find(END_OF_THOUGHT, end)
    return text


def _choose(
    blocks: list[Block], language: str, entry_point: str, *, truncated: bool
) -> tuple[str | None, ExtractionMethod]:
    """Choose the last closed tagged block, else the last closed untagged block, else an unclosed last block.

    Among the closed blocks, those that define the entry point come first. If the last block that defines the entry
    point is unclosed, it comes before them, provided that it is the only such block or does not break off: a stop
    sequence has then removed its fence, and the other blocks were drafts.
    """
    if entry_point:
        defining = [block for block in blocks if defines(block.body, entry_point)]
        last = defining[-1] if defining else None
        fits = last is not None and (not last.tag or _speaks(last.tag, language))
        if last is not None and fits and not last.closed and (len(defining) == 1 or _stands(last, truncated)):
            return last.body, ExtractionMethod.UNCLOSED_BLOCK
        if _last_closed(defining, lambda tag: not tag or _speaks(tag, language)) is not None:
            blocks = defining
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


def _stands(block: Block, truncated: bool) -> bool:
    return not truncated and looks_whole(block.body)


def _last_closed(blocks: list[Block], wanted: Callable[[str], bool]) -> Block | None:
    """Return the last closed block with a wanted tag that is not empty."""
    for block in reversed(blocks):
        if block.closed and wanted(block.tag) and block.body.strip():
            return block
    return None


_TAGS: dict[str, re.Pattern[str]] = {name: re.compile(language.tags) for name, language in LANGUAGES.items()}
"""Spellings of a language after a fence, in lower case. An unlisted language is spelt only as itself."""


def _speaks(tag: str, language: str) -> bool:
    """Return whether a fence's tag names the language, by its name or by a file's ending."""
    name = tag.lower()
    pattern = _TAGS.get(language)
    if pattern is None:
        return name == language.lower()
    return pattern.fullmatch(name) is not None or pattern.fullmatch(name.rpartition(".")[2]) is not None
