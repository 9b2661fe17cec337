"""Messages to a model about a completion that failed. Pure.

Only three things enter a message: our own words, the class of the failure, and the problem's public tests with the
program's output on them. Inputs and expected outputs come from the problem's record and not from the verdict. Every
other text of the verdict (private tests, reasons, assertions, a grader's output) is never read, so it cannot leak.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from evalrun_data.records import Problem, StdioTests
from evalrun_proto.judge.v1 import judge_pb2 as pb

DEFAULT_TEMPLATE: Final = """\
Your program failed: {status}.
{tests}
Find the mistake, and answer with one code block that holds the complete corrected program.
"""
WRONG: Final = "Your answer is wrong. Answer with one code block that holds the complete corrected program."
"""The whole feedback of the control."""

WORDS: Final = {
    pb.FINAL_STATUS_WRONG_ANSWER: "its output is wrong for at least one test",
    pb.FINAL_STATUS_RUNTIME_ERROR: "it ended with a runtime error in at least one test",
    pb.FINAL_STATUS_TIMEOUT: "it exceeded the time limit in at least one test",
    pb.FINAL_STATUS_SYNTAX_ERROR: "it does not compile",
    pb.FINAL_STATUS_EMPTY_OUTPUT: "the answer holds no program",
}
"""Text by final status. A verdict with another status is not judged, and opens no turn."""

TEST_WORDS: Final = {
    pb.TEST_STATUS_WRONG_ANSWER: "the output is wrong",
    pb.TEST_STATUS_RUNTIME_ERROR: "it ended with a runtime error",
    pb.TEST_STATUS_MEMORY_LIMIT: "it exceeded the memory limit",
    pb.TEST_STATUS_TIMEOUT: "it exceeded the time limit",
    pb.TEST_STATUS_ASSUMED_TIMEOUT: "it exceeded the time limit",
    pb.TEST_STATUS_COMPILE_ERROR: "it does not compile",
    pb.TEST_STATUS_COMPILE_TIMEOUT: "compiling it took too long",
}
"""Text by the failure of a shown test. A test that could not be judged shows nothing about the program."""

_PLACES: Final = re.compile(r"\{(status|tests)\}")
_BACKTICKS: Final = re.compile(r"`{3,}")


@dataclass(frozen=True, slots=True)
class FeedbackOptions:
    """Options that decide how much a message reveals."""

    template: str = DEFAULT_TEMPLATE
    """`{status}` and `{tests}` are replaced, other braces stay."""
    shown_tests: int = 1
    """Maximum number of failed public tests that are shown."""
    shown_characters: int = 500
    """Maximum characters of each text of a test."""
    only_wrong: bool = False
    """The control: the message is always `WRONG`."""


def feedback_text(problem: Problem, verdict: pb.Verdict, options: FeedbackOptions, *, ours: bool = True) -> str:
    """Return the feedback to the model after a verdict that rejects its completion.

    Args:
        problem: the problem, cut to the tests that the run uses and the verdict is about.
        verdict: a verdict that is judged and not accepted.
        options: how much the message reveals.
        ours: whether the verdict's tests are the problem's. A grader's verdict has its own run as a test, and a
            SandboxFusion server may use any tests.
    """
    if options.only_wrong:
        return WRONG
    texts = {
        "status": WORDS.get(verdict.final_status, "it was not accepted"),
        "tests": "\n".join(_render_failed_tests(problem, verdict, options)) if ours else "",
    }
    return _PLACES.sub(lambda place: texts[place[1]], options.template)


def _render_failed_tests(problem: Problem, verdict: pb.Verdict, options: FeedbackOptions) -> Iterator[str]:
    """Yield the first public tests that failed, each with the program's own output."""
    truth = problem.ground_truth
    if not isinstance(truth, StdioTests) or len(verdict.tests) > len(truth.groups):
        # Function tests are not public, and a source without groups does not show which tests are.
        return
    shown = 0
    for test in verdict.tests:
        if shown == options.shown_tests:
            return
        number = test.case_index
        if number >= len(truth.groups) or truth.groups[number] != "public" or test.status not in TEST_WORDS:
            continue
        shown += 1
        parts = [f"A public test failed: {TEST_WORDS[test.status]}."]
        limit = options.shown_characters
        if test.ran:
            parts += _block("Input", _head(truth.inputs[number], limit))
            parts += _block("Expected output", _head(truth.outputs[number], limit))
            parts += _block("Your output", _head(test.stdout.text, limit))
        errors = test.stderr.text if test.ran else test.compile_stderr.text
        parts += _block("Errors", _tail(errors, limit)) if errors.strip() else []
        yield "\n".join(parts)


def _block(title: str, text: str) -> list[str]:
    """Return a titled code block, whose fence is longer than any in the text."""
    longest = max((len(found[0]) for found in _BACKTICKS.finditer(text)), default=2)
    fence = "`" * (longest + 1)
    return [f"{title}:", fence, text.rstrip("\n"), fence]


def _head(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... [cut]"


def _tail(text: str, limit: int) -> str:
    """Return the end of a text: a traceback names the error in its last line."""
    return text if len(text) <= limit else f"[cut] ...{text[-limit:]}"
