"""MultiPL-E's rows: HumanEval and MBPP translated to other languages, of which the sandbox runs C++.

The prompt ends within a function, and the published tests begin with the brace that closes it. `main` follows.
"""

import re
from typing import Final

from evalrun_data.records import MainTest, Problem
from evalrun_data.rows import Row

DATASET: Final = "multipl_e_cpp"

_MAIN: Final = re.compile(r"\s*\}\s*(int\s+main\s*\(\s*\)\s*\{.*\})\s*", re.DOTALL)
_CANDIDATE: Final = re.compile(r"\bauto\s+candidate\s*=\s*([A-Za-z_]\w*)\s*;")
_LEAVES: Final = re.compile(r"\b(?:return|_?exit|_Exit|quick_exit)\b")


def is_multipl_e(row: Row) -> bool:
    """Return whether a row is MultiPL-E's."""
    return row.has("stop_tokens") and row.has("tests") and row.has("prompt") and row.has("language")


def parse_multipl_e(row: Row, dataset: str | None) -> Problem:
    """Return the problem of a row. Raises BadInputError if its language does not run here, or its tests read otherwise.

    Args:
        row: as published.
        dataset: the dataset asked for.
    """
    language = row.name("language")
    if language != "cpp":
        raise row.error(
            f"MultiPL-E in '{language}' is not supported, only in cpp: the sandbox runs Python, C and C++; "
            + (
                "read HumanEval or MBPP itself, which it translates"
                if language in ("py", "python")
                else "use MultiPL-E's own containers for this language"
            )
        )
    prompt, tests = row.text("prompt"), row.text("tests")
    main, called = _MAIN.fullmatch(tests), _CANDIDATE.search(tests)
    if main is None or called is None:
        raise row.error(
            "field 'tests' is not MultiPL-E's for C++: '}', then 'int main() {', 'auto candidate = NAME;', asserts, '}'"
        )
    if left := _LEAVES.search(tests):
        raise row.error(
            f"field 'tests' has '{left[0]}': a main that can end before its last line does not show that all ran"
        )
    return Problem(
        dataset=dataset or DATASET,
        problem_id=row.name("name"),
        prompt=prompt,
        ground_truth=MainTest(prompt, main[1], called[1]),
        data_source="multipl_e",
        language="cpp",
    )
