"""Outcomes of a test and their causes: the names that verdicts, function tests and records share."""

from enum import StrEnum


class TestStatus(StrEnum):
    """A test's verdict; `api_error` is no verdict: the judge could not decide."""

    # pytest collects classes called Test*.
    __test__ = False

    SUCCESS = "success"
    WRONG_ANSWER = "wrong_answer"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    ASSUMED_TIMEOUT = "assumed_timeout"
    """A remaining test after too many timeouts that did not end within the short limit (`short_runs`): counted as
    failed."""
    MEMORY_LIMIT = "memory_limit"
    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    API_ERROR = "api_error"


class ForgeableCause(StrEnum):
    """Reason why a program could have forged its verdict."""

    SHARED_PROCESS = "shared_process"
    """Every test of the family shares a process, or a disk, with the program."""
    OWN_OPERATORS = "own_operators"
    """An operator of the program's own class decided."""
    PROCESS = "process"
    """The tests change or watch their own process, so they run in the program's; as for all causes below."""
    ARGUMENTS = "arguments"
    """The tests pass arguments that cannot cross: generators, sentinels, objects with methods."""
    CLASSES = "classes"
    """The tests derive classes from the program's."""
    PROMPT = "prompt"
    """The tests use exceptions, flags or variables that the prompt defines, or the program continues its class."""
    EVALUATION = "evaluation"
    """The tests evaluate text."""
    ASKED = "asked"
    """The dataset asks for `functionTests: together`."""
    CASES = "cases"
    """The tests are a file of unittest or pytest."""


class TestCause(StrEnum):
    """Cause of a test's outcome if software acts on it; a test's `reason` is only for people."""

    # pytest collects classes called Test*.
    __test__ = False

    BROKEN_TEST = "broken_test"
    """The test fails by itself: no completion can pass it."""
    UNCONFIRMED = "unconfirmed"
    """The run was near the time limit, or short of CPU: another run may decide."""
    NOT_RUN = "not_run"
    """The sandbox did not run the test: another run may."""
