"""Users' graders: a file with `compute_score`, run by the judge's sandbox for one answer at a time.

Pure but for `load_graders`. A grader is a program of its own: its standard input is the answer as data. It never shares
a process with a candidate's program, and is contained as one: a grader that hangs, forks or prints without end is
stopped at the limits, and its sample is not judged.
"""

import ast
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from evalrun.judge.v1 import judge_pb2
from evalrun_api.v1alpha1 import Dataset
from evalrun_client.judge_request import Answer, judge_request
from evalrun_data.records import Problem, ProblemComparator, StdioTests
from evalrun_reward.judge_calls import Tests
from evalrun_reward.wire import Outcome, Result, Sample
from evalrun_runtime.exits import BadInputError

FUNCTION = "compute_score"
OUTPUT_KIB = 1024
"""What a grader prints goes to stderr, of which only so much is kept; its score is one line of stdout."""
_RAN = (judge_pb2.TEST_STATUS_SUCCESS, judge_pb2.TEST_STATUS_WRONG_ANSWER)
"""It ended with exit code 0; what it printed is compared with nothing."""

_PROGRAM = """\
import asyncio, inspect, json, math, os, sys
_answer_to = os.dup(1)
os.dup2(2, 1)  # what the grader prints is no score
_given = json.loads(sys.stdin.buffer.read())

def _grade():
    names = {{"__name__": "grader"}}
    exec(compile({source!r}, "grader.py", "exec"), names)
    said, accepted = names[{function!r}](**_given), None
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

try:
    _answer = _grade()
except BaseException as error:
    _answer = {{"error": (type(error).__name__ + ": " + str(error))[:500]}}
os.write(_answer_to, json.dumps(_answer).encode())
"""


class _Score(msgspec.Struct, frozen=True):
    score: float = math.nan
    accepted: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Grader:
    """One file."""

    name: str
    program: str


class Graders:
    """Graders by the data source whose answers they score."""

    def __init__(self, graders: Mapping[str, Grader]) -> None:
        self._graders = graders

    def of(self, sample: Sample) -> Grader | None:
        """Return the grader of a sample's data source; None if the judge's tests decide."""
        return self._graders.get(sample.data_source or sample.dataset)


def load_graders(given: Sequence[str]) -> Graders:
    """Read the graders of `DATA_SOURCE=FILE` texts. Raises BadInputError."""
    graders: dict[str, Grader] = {}
    for text in given:
        source, equals, file = text.rpartition("=")
        if not equals or not source or not file:
            raise BadInputError(f"--grader {text}: write DATA_SOURCE=FILE, e.g. openai/gsm8k=gsm8k.py")
        if source in graders:
            raise BadInputError(f"--grader {text}: {source} has a grader already")
        graders[source] = Grader(source, grader_program(_read(file), file))
    return Graders(graders)


def grader_program(source: str, where: str) -> str:
    """Return the program that runs a grader. Raises BadInputError if it defines no `compute_score`."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise BadInputError(f"--grader: {where}: not a Python file: {error}") from error
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if FUNCTION not in functions:
        raise BadInputError(f"--grader: {where}: it defines no function {FUNCTION}")
    return _PROGRAM.format(source=source, function=FUNCTION)


def graded_request(grader: Grader, sample: Sample, ground_truth: object, judging: Dataset) -> Tests:
    """Return the grader's run for a sample: the answer is its input, and no candidate's program runs.

    Args:
        grader: of the sample's data source.
        sample: to be graded.
        ground_truth: as the sample holds it.
        judging: whose limits hold.
    """
    given = {
        "data_source": sample.data_source or sample.dataset,
        "solution_str": sample.response,
        "ground_truth": ground_truth,
        "extra_info": {},
    }
    tests = StdioTests((json.dumps(given),), ("",))
    problem = Problem("grader", grader.name, "", tests, comparator=ProblemComparator("exact"))
    request = judge_request("", judging, problem, Answer(""))
    request.ClearField("suite_digest")  # no other answer has this input
    request.limits.output_kib = OUTPUT_KIB
    return Tests(request, None, request.ByteSize())


def grader_submission(grader: Grader) -> judge_pb2.Submission:
    """Return the grader as the program that is run."""
    return judge_pb2.Submission(text=grader.program, mode=judge_pb2.SUBMISSION_MODE_STANDALONE, language="python")


def graded_result(sample_id: str, grader: Grader, verdict: judge_pb2.Verdict) -> Result:
    """Return what a grader's run says; one that gave no score leaves its sample not judged, with the reason."""
    run = verdict.tests[0] if verdict.tests else judge_pb2.TestResult(status=judge_pb2.TEST_STATUS_API_ERROR)
    score = _score_of(run.stdout.text) if run.status in _RAN else None
    if score is None or not math.isfinite(score.score):
        why = score.error if score is not None and score.error else _why(run)
        return Result(id=sample_id, outcome=Outcome.NOT_JUDGED, reason=f"the grader of {grader.name}: {why}")
    return Result(
        id=sample_id,
        outcome=Outcome.JUDGED,
        reward=score.score,
        accepted=score.accepted,
        final_status="graded",
        cached=verdict.cached,
    )


def _score_of(text: str) -> _Score | None:
    try:
        return msgspec.json.decode(text.encode(), type=_Score)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None


def _why(run: judge_pb2.TestResult) -> str:
    if run.status in _RAN:
        return "it ended without a score"
    how = judge_pb2.TestStatus.Name(run.status).removeprefix("TEST_STATUS_").lower()
    return f"{how}: {run.reason}" if run.reason else how


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"--grader {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"--grader {file}: not UTF-8: {error}") from error
