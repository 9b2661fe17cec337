"""Users' graders: a file with `compute_score`, run by the judge's sandbox for an answer at a time.

Pure except for `read_grader`. A grader is a program of its own: its standard input is the answer as data. It never
shares a process with a candidate's program, and is contained as one: a grader that hangs, exits, forks or prints
without end is stopped at the limits, and its answer is not judged.
"""

import ast
import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from evalrun_api.v1alpha1 import Dataset
from evalrun_client.judge_request import Answer, dense_score, judge_request
from evalrun_data.records import Problem, Reference
from evalrun_data.sources import read_bytes
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_registry.limits import CONTEST_LIMITS, DEFAULT_LIMITS
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.unicode_text import replace_surrogates

FUNCTION: Final = "compute_score"
OUTPUT_KIB: Final = 1024
"""A grader's prints go to stderr, which is cut to a bound; its score is one line of stdout."""
MAX_BYTES: Final = 1 << 20
"""Largest size of a grader's file in bytes."""
CODE_SOURCES: Final = frozenset({"codecontests", "apps", "codeforces", "taco"})
"""Data sources that verl's routing sends to prime_code, which runs answers uncontained, or to SandboxFusion (0.9.1)."""

_RAN: Final = (judge_pb2.TEST_STATUS_SUCCESS, judge_pb2.TEST_STATUS_WRONG_ANSWER)
"""Statuses of a test that ended with exit code 0; what it printed is compared with nothing."""

_PROGRAM: Final = """\
import asyncio, inspect, json, math, os, sys
_answer_to = os.dup(1)
os.dup2(2, 1)  # what the grader prints is no score
_given = json.loads(sys.stdin.buffer.read())

def _grade(given):
    names = {{"__name__": "grader"}}
    exec(compile({source!r}, "grader.py", "exec"), names)
    said, accepted = names[{function!r}](**given), None
    if inspect.isawaitable(said):
        async def wait(waited=said):
            return await waited
        said = asyncio.run(wait())
    if isinstance(said, dict):
        accepted, said = said.get("acc"), said["score"]
    elif isinstance(said, (list, tuple)):
        said = said[0]
    score = float(said)
    if not math.isfinite(score):
        raise ValueError("the score is " + repr(score))
    return {{"score": score, "accepted": score >= 1 if accepted is None else bool(accepted)}}

def _handles_expected():
    truth = _given["ground_truth"]
    try:
        _grade({{**_given, "solution_str": truth if isinstance(truth, str) else json.dumps(truth)}})
    except BaseException:
        return False
    return True

try:
    _answer = _grade(_given)
except BaseException as error:
    _said = (type(error).__name__ + ": " + str(error)).encode("ascii", "backslashreplace")
    _answer = {{"error": _said[:500].decode()}}
    if not isinstance(error, ImportError) and _handles_expected():
        _answer.update(score=0.0, accepted=False)
    if isinstance(error, ModuleNotFoundError) and isinstance(error.name, str):
        _answer["missing_module"] = error.name[:100].encode("ascii", "replace").decode()
os.write(_answer_to, json.dumps(_answer).encode())
"""

_VERLS: Final = """\
import os, sys, types

def _without_torch():
    for root in sys.path:
        if os.path.isfile(os.path.join(root, "verl", "utils", "reward_score", "__init__.py")):
            for name in ("verl", "verl.utils"):
                sys.modules[name] = package = types.ModuleType(name)
                package.__path__ = [os.path.join(root, *name.split("."))]
            sys.modules["verl.utils.py_functional"] = functions = types.ModuleType("verl.utils.py_functional")
            functions.timeout_limit = lambda seconds, **_: lambda function: function
            return

_without_torch()
from verl.utils.reward_score import default_compute_score as compute_score
"""
"""verl's packages import torch and Ray, its scorers do not: they are imported by themselves. Its time limit starts a
process that talks through a semaphore, which the sandbox refuses; the sandbox's own limit holds instead."""


@dataclass(frozen=True, slots=True)
class Grader:
    """A grader, ready to be run."""

    name: str
    """Name for messages: of a dataset, or of a data source."""
    program: str
    sha256: str
    """Digest of the grader's file."""
    only_answers: bool = False
    """verl's: rows of data sources with code have tests, and the judge decides."""

    def decides(self, data_source: str) -> bool:
        """Return whether it scores rows of a data source; otherwise their tests decide."""
        return not (self.only_answers and data_source in CODE_SOURCES)


def read_grader(name: str, place: str, function: str = FUNCTION, base_dir: Path = Path()) -> Grader:
    """Read a grader's file. Raises BadInputError if it cannot be read, or defines no such function."""
    content = read_bytes(place, base_dir, max_bytes=MAX_BYTES)
    try:
        source = content.decode()
    except UnicodeDecodeError as error:
        raise BadInputError(f"{place}: is not UTF-8 (byte {error.start}): save the file as UTF-8") from error
    return Grader(name, grader_program(source, place, function), hashlib.sha256(content).hexdigest())


def read_dataset_grader(dataset: Dataset, base_dir: Path) -> Grader | None:
    """Return the grader that a dataset names; None if its tests decide. Raises BadInputError."""
    asked = dataset.grader
    if asked is None:
        return None
    return verls_grader(dataset.name) if asked.is_verls else read_grader(dataset.name, asked.path, asked.name, base_dir)


def verls_grader(name: str) -> Grader:
    """Return verl's own routing by data source as a grader; it scores only answers that are not code."""
    program = _PROGRAM.format(source=_VERLS, function=FUNCTION)
    return Grader(name, program, hashlib.sha256(_VERLS.encode()).hexdigest(), only_answers=True)


def grader_program(source: str, where: str, function: str = FUNCTION) -> str:
    """Return the program that runs a grader. Raises BadInputError if it does not define the function."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise BadInputError(f"{where}: not a Python file: {error}") from error
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if function not in functions:
        raise BadInputError(f"{where}: it defines no function {function}")
    return _PROGRAM.format(source=source, function=function)


def answer_request(
    run: str, dataset: Dataset, problem: Problem, answer: Answer, grader: Grader | None
) -> judge_pb2.JudgeRequest:
    """Return the request about a completion: with its tests, or with the grader's run."""
    if grader is None or not grader.decides(problem.data_source):
        return judge_request(run, dataset, problem, answer)
    truth = problem.ground_truth
    if isinstance(truth, Reference):
        ground_truth, extra_info = json.loads(truth.ground_truth), json.loads(truth.extra_info)
    # A published format keeps its tests as JSON, as verl's rows do.
    else:
        ground_truth, extra_info = json.dumps(asdict(truth)), {}
    text = answer.text if dataset.max_answer_characters is None else answer.text[: dataset.max_answer_characters]
    given = render_grader_input(problem.data_source or problem.dataset, text, ground_truth, extra_info)
    return grader_request(run, dataset, grader, given)


def render_grader_input(data_source: str, response: str, ground_truth: object, extra_info: Mapping[str, Any]) -> str:
    """Return the arguments of a grader's call, as JSON."""
    return json.dumps(
        {
            "data_source": data_source,
            "solution_str": response,
            "ground_truth": ground_truth,
            "extra_info": dict(extra_info),
        }
    )


def grader_request(run: str, dataset: Dataset, grader: Grader, given: str) -> judge_pb2.JudgeRequest:
    """Return the request that runs a grader once; no candidate's program runs.

    Args:
        run: on whose behalf.
        dataset: whose limits hold.
        grader: the program.
        given: its input (`render_grader_input`).
    """
    asked = dataset.limits
    request = judge_pb2.JudgeRequest(
        run=run,
        submission=judge_pb2.Submission(
            text=grader.program, mode=judge_pb2.SUBMISSION_MODE_STANDALONE, language="python"
        ),
        limits=judge_pb2.Limits(
            time_seconds=(asked and asked.cpu_seconds) or CONTEST_LIMITS.time_seconds,
            memory_mib=(asked and asked.memory_mib) or DEFAULT_LIMITS.memory_mib,
            output_kib=OUTPUT_KIB,
        ),
        comparator=judge_pb2.Comparator(name="exact"),
    )
    request.stdio.tests.add(input=given, expected_output="")
    return request


def answer_verdict(problem: Problem, grader: Grader | None, verdict: judge_pb2.Verdict) -> judge_pb2.Verdict:
    """Return the verdict on a completion from the judge's reply to `answer_request`."""
    if grader is None:
        return verdict
    if grader.decides(problem.data_source):
        return make_graded_verdict(grader, verdict)
    scored = judge_pb2.Verdict()
    scored.CopyFrom(verdict)
    score = dense_score(verdict)
    if score is not None:
        scored.score = score
    return scored


def make_graded_verdict(grader: Grader, verdict: judge_pb2.Verdict) -> judge_pb2.Verdict:
    """Return the answer's verdict by a grader's run: not judged, with the reason, if the run gave no score."""
    test = judge_pb2.TestResult(status=judge_pb2.TEST_STATUS_API_ERROR)
    if verdict.tests:
        test.CopyFrom(verdict.tests[0])
    del test.disagreeing_comparators[:]
    said = _said(test.stdout.text) if test.status in _RAN else {}
    score, graded = (
        said.get("score"),
        judge_pb2.Verdict(
            containment_level=verdict.containment_level, cached=verdict.cached, queue_seconds=verdict.queue_seconds
        ),
    )
    if not isinstance(score, int | float) or isinstance(score, bool) or not abs(score) <= sys.float_info.max:
        # The sandbox decided how it ended, so no other attempt would change it; an api_error may pass.
        graded.permanent = verdict.judged or verdict.permanent
        graded.final_status = judge_pb2.FINAL_STATUS_API_ERROR
        reason = f"the grader of {grader.name}: {said.get('error') or _why(test)}"
        test.cause = judge_pb2.TEST_CAUSE_NO_SCORE
        test.missing_module = _package(said.get("missing_module"))
        # A grader may print characters that no message can hold.
        test.reason = replace_surrogates(reason)
        test.status = judge_pb2.TEST_STATUS_API_ERROR
    else:
        accepted = said.get("accepted") is True
        graded.judged, graded.accepted, graded.score = True, accepted, float(score)
        graded.final_status = judge_pb2.FINAL_STATUS_SUCCESS if accepted else judge_pb2.FINAL_STATUS_WRONG_ANSWER
        test.status = judge_pb2.TEST_STATUS_SUCCESS if accepted else judge_pb2.TEST_STATUS_WRONG_ANSWER
        if "error" in said:
            reason = f"the grader of {grader.name} handles the expected answer, and not this one: {said['error']}"
            test.reason = replace_surrogates(reason)
    graded.tests.append(test)
    return graded


def scoreless_test(verdict: judge_pb2.Verdict) -> judge_pb2.TestResult | None:
    """Return the grader's run that gave no score; None if there is a score, or if no grader was asked."""
    if verdict.judged:
        return None
    return next((test for test in verdict.tests if test.cause == judge_pb2.TEST_CAUSE_NO_SCORE), None)


def _package(module: object) -> str:
    """Return the package of a module that a grader names; empty if that is not a module's name."""
    package = module.partition(".")[0] if isinstance(module, str) else ""
    return package if package.isascii() and package.isidentifier() else ""


def _said(text: str) -> Mapping[str, Any]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _why(test: judge_pb2.TestResult) -> str:
    if test.status in _RAN:
        return "it ended without a score"
    how = judge_pb2.TestStatus.Name(test.status).removeprefix("TEST_STATUS_").lower()
    return f"{how}: {test.reason}" if test.reason else how
