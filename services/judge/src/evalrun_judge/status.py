"""Outcomes of a test and their causes: the names that verdicts, function tests and records share."""

from enum import StrEnum


class TestStatus(StrEnum):
    """A test's verdict; `api_error` is none: the judge could not tell."""

    __test__ = False  # pytest collects classes called Test*

    SUCCESS = "success"
    WRONG_ANSWER = "wrong_answer"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    ASSUMED_TIMEOUT = "assumed_timeout"
    """Left after too many timeouts, and not ended within the short limit (`short_runs`): counted as failed."""
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
    """They pass what cannot cross: generators, sentinels, objects with methods."""
    CLASSES = "classes"
    """They derive classes from the program's."""
    PROMPT = "prompt"
    """They use exceptions, flags or variables that the prompt defines, or the program continues its class."""
    EVALUATION = "evaluation"
    """They evaluate text."""
    ASKED = "asked"
    """The dataset says `functionTests: together`."""
    CASES = "cases"
    """They are a file of unittest or pytest."""


class TestCause(StrEnum):
    """Cause of a test's outcome where software acts on it; a test's `reason` is for people alone."""

    __test__ = False  # pytest collects classes called Test*

    BROKEN_TEST = "broken_test"
    """The test fails by itself: no answer can pass it."""
    UNCONFIRMED = "unconfirmed"
    """Near the time limit, or short of CPU: another run may decide."""
    NOT_RUN = "not_run"
    """The sandbox did not run it: another run may."""
