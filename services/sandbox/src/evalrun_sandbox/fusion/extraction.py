"""Extracts code from a completion by SandboxFusion's two rules, including their faults. Pure.

The first block wins, even inside `<think>`; evalrun's own rule differs (evalrun_judge.extraction). Reproduced faults:
`~~~` fences are text, a closing fence on the code's last line does not close, indented fences keep the indent, and
without a fence only the first definition of a Python program is found.
"""

import re

from evalrun_registry.languages import LANGUAGES

_FENCED = re.compile(r"```([^\n]*)\n(.*?)\n\s*```", re.DOTALL)
_UNCLOSED = re.compile(r"```([^\n]*)\n(.*)", re.DOTALL)
_DEFINITION = re.compile(r"(?:^(?:import|from|#)[^\n]+\n)*^(?:def|class) [^\n]+\n(?:\s+[^\n]+\n)+", re.MULTILINE)

_LANGUAGE_OF = {
    tag: language.fusion.name
    for language in LANGUAGES.values()
    if language.fusion is not None
    for tag in language.fusion.tags
}

Block = tuple[str, str]
"""Language ("" if the tag names no language that can run here) and text."""


def find_first_of_language(completion: str, language: str) -> str:
    """Return the first block of the language, else the first block; closed blocks, then unclosed, then a definition.

    This is the stock server's `default_extract_helper`, for CommonOJ and HumanEval's free form.
    """
    blocks = _find_blocks(completion, language)
    matching = [text for tag, text in blocks if tag == language]
    return (matching or [text for _, text in blocks] or [""])[0]


def find_first_block(completion: str) -> str:
    """Return the first block of any language, cut at Python's main guard and at example usage.

    This is the stock server's `extract_code_from_freeform_completion` for Python, for MBPP and shadow HumanEval's free
    form.
    """
    blocks = _find_blocks(completion, "python")
    code = blocks[0][1].replace("\r", "") if blocks else ""
    for end in ('if __name__ == "__main__":', "# Example usage"):
        if end in code:
            code = code[: code.index(end)].strip()
    return code


def _find_blocks(completion: str, language: str) -> list[Block]:
    found = _FENCED.findall(completion) or _UNCLOSED.findall(completion)
    if found or language != "python":
        return [(_LANGUAGE_OF.get(tag.strip(), ""), text) for tag, text in found]
    dense = "\n".join(line for line in completion.split("\n") if line.strip()) + "\n"
    return [("python", text) for text in _DEFINITION.findall(dense)]
