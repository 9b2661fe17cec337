"""Plans tests that run in the program's own process, and reads their end. Pure.

These tests cannot be judged apart. They are chosen by the tests' text, before any completion runs, and every verdict is
`forgeable`. The sandbox runs an ordinary program of ours, so a stock SandboxFusion can run it too.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from evalrun_executor.api import ProgramRun
from evalrun_executor.harness import Harness, list_modules
from evalrun_judge.cpython_texts import parse_package
from evalrun_judge.function_tests.call_answers import Ending, decide_ending
from evalrun_judge.function_tests.programs import program
from evalrun_judge.status import TestCause, TestStatus

HARNESS: Final = Harness(
    list_modules("evalrun_judge.function_tests", Path(__file__).parent, ("together_harness",)),
)
REASON_LIMIT: Final = 2000
_STATUSES: Final = (
    *(TestStatus.SUCCESS, TestStatus.WRONG_ANSWER, TestStatus.RUNTIME_ERROR),
    *(TestStatus.MEMORY_LIMIT, TestStatus.COMPILE_ERROR, TestStatus.API_ERROR),
)


def together_program(code: str) -> str:
    """Return the program that runs a candidate's code and one test, which it reads on stdin."""
    return program(HARNESS, code)


def read_together(run: ProgramRun, secret: str) -> Ending:
    """Return how a test ended. A process that did not report has failed.

    A missing import of the test is reported as api_error before the program is loaded.
    """
    report = _report(run.stdout, secret)
    if report is None or run.end != "exited":
        if run.end == "exited":
            return Ending(TestStatus.RUNTIME_ERROR, "the program ended the process of its test")
        return decide_ending(run)
    status = str(report.get("status"))
    if status not in _STATUSES:
        return Ending(TestStatus.RUNTIME_ERROR, "the program wrote into the judge's channel")
    reason = str(report.get("reason") or "")[:REASON_LIMIT]
    cause = TestCause.BROKEN_TEST if status == TestStatus.API_ERROR else None
    return Ending(TestStatus(status), reason, cause, parse_package(report.get("missing_module")))


def _report(stdout: bytes, secret: str) -> Mapping[str, object] | None:
    head = f"{secret} ".encode()
    lines = [line for line in stdout.split(b"\n") if line.startswith(head)]
    if len(lines) != 1:
        return None
    try:
        parsed = json.loads(lines[0][len(head) :])
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None
