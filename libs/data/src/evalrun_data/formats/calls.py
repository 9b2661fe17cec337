"""Makes asserts of tests that are calls with JSON values, as in APPS, TACO, LiveCodeBench and verl's `fn_name`.

Each call is an assert in MBPP's form. The assertions run in the contained child, so the expected values never share a
process with the program.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from evalrun_data.records import AssertTests, Message
from evalrun_data.rows import Row

Rules = Literal["apps", "livecodebench"]

_CLASS: Final = re.compile(r"^\s*class\s+Solution\b", re.MULTILINE)
_NAME: Final = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")

# A value is looked at only if it is plain: an object of the program's own could equal everything.
_SETUP: Final = '''\
import json
import sys

def _evalrun_plain(value):
    if type(value).__module__ not in sys.stdlib_module_names:
        return False
    if isinstance(value, dict):
        return all(map(_evalrun_plain, value.keys())) and all(map(_evalrun_plain, value.values()))
    return not isinstance(value, (list, tuple, set, frozenset)) or all(map(_evalrun_plain, value))

def _evalrun_numbered(value):
    """JSON has no whole number as a key: what looks like one was one."""
    if isinstance(value, dict) and all(key.lstrip("-").isdecimal() for key in value):
        return {int(key): item for key, item in value.items()}
    return value

def _evalrun_arguments(text):
    return [_evalrun_numbered(value) for value in json.loads(text)]
'''
_OFFERED: Final = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "typing", "builtins"),
)
PRELUDE: Final = (
    "".join(f"from {name} import *\n" for name in _OFFERED) + f"import {', '.join(_OFFERED)}\n"
    "sys.setrecursionlimit(50000)\n"
)
"""Programs of these benchmarks are written for harnesses that import this before them; builtins last, so that `pow` and
`open` are Python's own."""
_METHOD_INSTEAD: Final = "def {name}(*arguments):\n    return Solution().{name}(*arguments)\n"
_RULES: Final[dict[Rules, str]] = {
    # In apps/eval/testing_util.py a tuple counts as a list, also inside a list; the expected value may stand in a list.
    "apps": """
def _evalrun_accepts(out, text):
    expected = _evalrun_numbered(json.loads(text))
    if not _evalrun_plain(out):
        return False
    out = list(out) if isinstance(out, tuple) else out
    if isinstance(out, list) and out and isinstance(out[0], tuple):
        out = [list(item) if isinstance(item, tuple) else item for item in out]
    return out == expected or (isinstance(expected, list) and len(expected) > 0 and out == expected[0])
""",
    # In lcb_runner/evaluation/testing_util.py a tuple counts as a list, but not inside a list.
    "livecodebench": """
def _evalrun_accepts(out, text):
    out = list(out) if isinstance(out, tuple) else out
    return _evalrun_plain(out) and out == json.loads(text)
""",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A test."""

    arguments: str
    """A JSON list."""
    expected: str
    """JSON."""


def call_tests(row: Row, function: str, calls: Sequence[Call], starter: str, rules: Rules) -> AssertTests:
    """Return calls as asserts.

    Args:
        row: for complaints.
        function: the called function, or method of `class Solution` if the starter code has that class. By the rules of
            APPS it is also a method if only the answer has the class.
        calls: the tests.
        starter: the program's starter code, or the task's text if no starter code is published.
        rules: by whose rules a returned value is compared.
    """
    if not _NAME.match(function):
        raise row.error(f"the function to call is '{function}': write a name of Python")
    method = _CLASS.search(starter) is not None
    called = f"Solution().{function}" if method else function
    asserts = tuple(
        f"assert _evalrun_accepts({called}(*_evalrun_arguments({call.arguments!r})), {call.expected!r})"
        for call in calls
    )
    # APPS' harness, and so verl, decides by the answer: where it writes a class, the function is its method. A reward
    # function gets no starter code to tell. The answer's own function replaces this one.
    instead = _METHOD_INSTEAD.format(name=function) if rules == "apps" and not method else ""
    return AssertTests(asserts, _SETUP + _RULES[rules], "Solution" if method else function, PRELUDE + instead)


def call_chat(prompt: str, starter: str) -> tuple[Message, ...]:
    """Return the prompt. The template of asserts would show some tests, but the calls here are hidden tests."""
    begins = f"\n\nBegin with this code:\n\n```python\n{starter.strip()}\n```" if starter.strip() else ""
    task = f"Solve the following problem in Python.\n\n{prompt.strip()}{begins}\n\n"
    asked = "Answer with one Python code block that holds the complete code, with every import that it needs."
    return (Message("user", task + asked),)
