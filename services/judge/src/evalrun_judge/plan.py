"""From a request to what must run. Pure."""

import re
from dataclasses import dataclass
from typing import Literal, cast

from evalrun_judge.extraction import Extraction, SubmissionMode, extract
from evalrun_judge.sandboxes import SubmitCall
from evalrun_judge.submission import CheckTest, InvalidRequestError, JudgeRequest, StdioTests, SubmitTests
from evalrun_sandbox.api import Limits, RunRequest

Language = Literal["python", "c", "cpp"]

FUTURE_IMPORT = re.compile(r"from __future__ import [\w, ]+")


@dataclass(frozen=True, slots=True)
class NothingToRun:
    """There is no program: no sandbox is asked."""

    extraction: Extraction


@dataclass(frozen=True, slots=True)
class StdioPlan:
    """One program, one run a test."""

    extraction: Extraction
    run: RunRequest
    expected: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class FunctionPlan:
    """A program that defines functions, for a session of calls and assertions."""

    extraction: Extraction
    program: str
    """With the problem's prompt before it where it belongs there."""


@dataclass(frozen=True, slots=True)
class SubmitPlan:
    """One program for a server that has the tests."""

    extraction: Extraction
    call: SubmitCall


def plan_of(request: JudgeRequest) -> NothingToRun | StdioPlan | FunctionPlan | SubmitPlan:
    """Say what a request that `check_request` let pass needs to have run. Raises InvalidRequestError."""
    submission = request.submission
    extraction = extract(
        submission.text,
        language=submission.language,
        mode=submission.mode,
        truncated=submission.truncated,
        max_characters=submission.max_characters,
    )
    if not extraction.code.strip():
        return NothingToRun(extraction)
    if isinstance(request.tests, SubmitTests):
        return submit_plan(request, request.tests, extraction)
    if not isinstance(request.tests, StdioTests):
        prompt = request.tests.prompt if isinstance(request.tests, CheckTest) else ""
        return FunctionPlan(extraction, program_after(prompt, extraction.code, submission.mode))
    tests = request.tests
    return StdioPlan(
        extraction,
        RunRequest(
            language=cast(Language, submission.language),  # one of the sandboxes' languages: `check_request` saw to it
            code=extraction.code,
            inputs=tests.inputs,
            limits=sandbox_limits(request),
            stop_after_timeouts=request.stop_after_timeouts,
            inputs_digest=tests.inputs_digest if tests.named else b"",
        ),
        tests.expected,
    )


_FENCE = re.compile(r"^\s*```", re.MULTILINE)
"""Where SandboxFusion ends a code block, also within a program."""

_NUMBER = re.compile(r"0|-?[1-9]\d{0,17}")


def submit_plan(request: JudgeRequest, tests: SubmitTests, extraction: Extraction) -> SubmitPlan | NothingToRun:
    """Plan a call of the server: the program that our rule finds, in the one block that its own rule then takes.

    By itself it takes the first block of an answer, also within what the model thought.

    Raises:
        InvalidRequestError: the server would cut the program.
    """
    append = request.submission.mode is SubmissionMode.APPEND
    language = request.submission.language
    completion = extraction.code if append else f"```{language}\n{extraction.code.rstrip()}\n```\n"
    if not append and _FENCE.search(extraction.code):
        if extraction.must_compile:
            return NothingToRun(extraction.without_code())
        raise InvalidRequestError(
            "submission.text: the program holds a line that begins with ```, at which SandboxFusion would cut it"
        )
    call = SubmitCall(
        dataset=tests.dataset,
        row=int(tests.id) if _NUMBER.fullmatch(tests.id) else tests.id,
        completion=completion,
        language=language,
        time_seconds=request.limits.time_seconds,
        free_form=not append,
        after_time_outs=request.stop_after_timeouts == 0,
    )
    return SubmitPlan(extraction, call)


def sandbox_limits(request: JudgeRequest) -> Limits:
    """Give the limits as the sandbox takes them."""
    limits = request.limits
    return Limits(time_seconds=limits.time_seconds, memory_mib=limits.memory_mib, output_kib=limits.output_kib)


def program_after(prompt: str, code: str, mode: SubmissionMode) -> str:
    """Put the problem's prompt before the code, as the mode says.

    An extracted program always comes after it, also where it restates the function: prompts hold imports and helpers.
    `from __future__` lines are legal at the top only, and move there.
    """
    if mode is SubmissionMode.STANDALONE or not prompt:
        return code
    if mode is SubmissionMode.APPEND:
        return prompt + code
    gap = "" if prompt.endswith("\n") else "\n"
    if "__future__" not in code:
        return prompt + gap + code
    lines = code.split("\n")
    futures = [line.rstrip() for line in lines if FUTURE_IMPORT.fullmatch(line.rstrip())]
    kept = "\n".join("" if FUTURE_IMPORT.fullmatch(line.rstrip()) else line for line in lines)
    return "".join(f"{line}\n" for line in futures) + prompt + gap + kept


def without_code(plan: StdioPlan | FunctionPlan | SubmitPlan) -> NothingToRun:
    """Give what the plan is once its text has turned out not to be code."""
    return NothingToRun(plan.extraction.without_code())
