"""Outcomes of a test: the names that verdicts, function tests and records share."""

from enum import StrEnum


class TestStatus(StrEnum):
    """A test's verdict; `api_error` is none: the judge could not tell."""

    __test__ = False  # pytest collects classes called Test*

    SUCCESS = "success"
    WRONG_ANSWER = "wrong_answer"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    ASSUMED_TIMEOUT = "assumed_timeout"
    """Left after too many time-outs, and not ended within the short limit (`short_runs`): counted as failed."""
    MEMORY_LIMIT = "memory_limit"
    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    API_ERROR = "api_error"
