"""HumanEvalDataset for Python: a function to complete and its `check`. The exit status is the verdict.

Only the dataset names for which the stock server calls `check` are served: under other names that server accepts
anything that does not crash.
"""

import re

from evalrun_sandbox.fusion.extraction import find_first_block, find_first_of_language
from evalrun_sandbox.fusion.families.program_plan import ProgramPlan
from evalrun_sandbox.fusion.families.row_fields import read_id, read_text
from evalrun_sandbox.fusion.schemas import Prompt, Row, SubmitRequest, TestConfig

PLAIN = "humaneval_python"

_IMPORTS = """import math
import re
import sys
import copy
import datetime
import itertools
import collections
import heapq
import statistics
import functools
import hashlib
try:
    import numpy
    import numpy as np
except ImportError:
    pass
import string
from typing import *
from collections import *
"""
"""Prepended to each program by the stock server. Its image has numpy; other interpreters may not have it."""

_AFTER_FUNCTION = re.compile(r"\n(?!\s|\n)(?=.|\n)")
"""Ends a function: the first line that is not indented."""
_FREE_FORM = {
    "en": (
        "Please complete the above code according to the requirements in the docstring. Write the complete code and "
        "wrap it in markdown syntax. The code should not contain `Main` function."
    ),
    "zh": "请按照docstring的要求补全如上代码，写出完整的代码，代码要用markdown语法包裹。代码不要包含`Main`函数",  # noqa: RUF001
}
"""The stock server's own sentences (Apache-2.0): a model's completions depend on each word."""


class HumanEval:
    """The family's rules."""

    def prompt(self, row: Row, dataset: str, config: TestConfig) -> Prompt:
        """Return the function's head; in the free form, with an instruction. All other fields are labels."""
        del dataset
        prompt = read_text(row, "prompt")
        if _is_free_form(config):
            instruction = _FREE_FORM["zh" if config.locale == "zh" else "en"]
            prompt = f"```python\n{prompt}\n```\n\n{instruction}"
        name = "task_id" if "task_id" in row else "name"
        return Prompt(
            id=read_id(row, name), prompt=prompt, labels={key: value for key, value in row.items() if key != "prompt"}
        )

    def plan(self, row: Row, request: SubmitRequest) -> ProgramPlan:
        """Plan imports, program, tests and the call of `check` as a single program."""
        tests, entry_point = read_text(row, "test"), read_text(row, "entry_point")
        config = request.config
        if not _is_free_form(config):
            extracted = _cut_function(request.completion)
            body = f"{read_text(row, 'prompt')}\n{extracted}"
        elif request.dataset == PLAIN:
            extracted = body = find_first_of_language(request.completion, "python")
        else:
            extracted = body = _cut_function(find_first_block(request.completion))
        program = f"{_IMPORTS}{body}\n{tests}\ncheck({entry_point})"
        return ProgramPlan(
            language="python",
            program=program,
            extracted_code=extracted,
            compile_timeout=config.compile_timeout or 20,
            run_timeout=config.run_timeout or 20,
            full_code=program,
        )


def _is_free_form(config: TestConfig) -> bool:
    return bool(config.extra.get("is_freeform"))


def _cut_function(completion: str) -> str:
    """Cut the text at the first line that is not indented, which ends the function."""
    found = _AFTER_FUNCTION.search(completion)
    return completion[: found.start()] if found else completion
