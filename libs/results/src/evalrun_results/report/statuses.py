"""Descriptions of an answer's status. Pure."""

from typing import Final

from evalrun_results.report.markup import Markup, element

LABELS: Final = {
    "success": "success",
    "wrong_answer": "wrong answer",
    "runtime_error": "runtime error",
    "timeout": "timeout",
    "syntax_error": "syntax error",
    "empty_output": "empty output",
    "api_error": "not judged",
}
"""Labels by final status, which is also the class of the colour."""


def pill(status: str) -> Markup:
    """Return a final status as a coloured word."""
    return element("span", LABELS.get(status, status), class_=f"pill {status}" if status in LABELS else "pill")
