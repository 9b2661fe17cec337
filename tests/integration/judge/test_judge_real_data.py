"""Real problems, real programs, real processes: the verdicts that their makers recorded."""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

from collections import Counter
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio
from builders.data import (
    ALL_DATA,
    contests_with_submissions,
    data_file,
    humaneval_with_solutions,
    json_rows,
    mbpp_with_solutions,
)
from builders.judge.services import judge_all, judge_until_judged, request_of, services, told

from evalrun_data.records import Problem, StdioTests
from evalrun_executor.cpus import usable_cpus
from evalrun_proto.judge.v1 import judge_pb2

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

APPEND, STANDALONE, AUTO = (
    judge_pb2.SUBMISSION_MODE_APPEND, judge_pb2.SUBMISSION_MODE_STANDALONE, judge_pb2.SUBMISSION_MODE_AUTO,
)  # fmt: skip

SAMPLED_PROGRAMS = 1
"""Of each language and filed verdict: a compiler takes a second of CPU, and a program that is too slow its limit."""
SAMPLED_TESTS = 20
SAMPLED_BYTES = 50_000
"""What a problem of the sample may have at most."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    # A timeout is confirmed with all slots of its sandbox empty: many cores are used by many small sandboxes.
    sandboxes = max(1, usable_cpus() // 2) if ALL_DATA else 1
    slots = ["--slots", "2"] if sandboxes > 1 else []
    directory = tmp_path_factory.mktemp("services")
    async with services(directory, sandboxes=sandboxes, sandbox_arguments=slots) as (gateway, _):
        yield gateway.address


def rejected(verdicts: Mapping[str, judge_pb2.Verdict]) -> dict[str, str]:
    return {name: told(verdict) for name, verdict in verdicts.items() if not (verdict.accepted and verdict.judged)}


async def test_every_canonical_solution_of_humaneval_is_accepted(judge: str) -> None:
    requests = {
        problem.problem_id: request_of(problem, solution, mode=APPEND)
        for problem, solution in humaneval_with_solutions()
    }
    verdicts = await judge_all(judge, requests)
    assert len(verdicts) == 164
    assert rejected(verdicts) == {}


async def test_a_fenced_answer_that_restates_the_function_runs_after_the_prompt(judge: str) -> None:
    requests = {}
    for problem, solution in humaneval_with_solutions():
        prompt = str(getattr(problem.ground_truth, "prompt"))  # noqa: B009 - a check test's, for mypy
        requests[problem.problem_id] = request_of(problem, f"Sure!\n```python\n{prompt}{solution}```\n", mode=AUTO)
    assert rejected(await judge_all(judge, requests)) == {}


async def test_every_reference_program_of_mbpp_11_to_210_is_accepted(judge: str) -> None:
    requests = {problem.problem_id: request_of(problem, code) for problem, code in mbpp_with_solutions()}
    verdicts = await judge_all(judge, requests)
    assert len(verdicts) == 200
    assert rejected(verdicts) == {}


@pytest.mark.parametrize("model", ["gpt-4_simple_a", "ollama-codellama_7b", "ollama-qwen2.5-coder_7b"])
async def test_recorded_completions_get_the_recorded_verdict(judge: str, model: str) -> None:
    problems = {problem.problem_id: problem for problem, _ in humaneval_with_solutions()}
    rows = json_rows(data_file(f"completions/humaneval_{model}.jsonl.gz"))
    modes = {"append": APPEND, "standalone": STANDALONE, "full": STANDALONE}
    requests = {
        str(row["task_id"]): request_of(
            problems[str(row["task_id"])], str(row["completion"]), mode=modes[str(row["mode"])]
        )
        for row in rows
    }
    verdicts = await judge_all(judge, requests)
    recorded = {str(row["task_id"]): bool(row["recorded"]) for row in rows}
    assert len(verdicts) == 164
    assert {name: told(verdict) for name, verdict in verdicts.items() if verdict.accepted is not recorded[name]} == {}


FILED = {
    "wrong_answer": {judge_pb2.TEST_STATUS_WRONG_ANSWER},
    "time_limit_exceeded": {judge_pb2.TEST_STATUS_TIMEOUT},
    "run_time_error": {judge_pb2.TEST_STATUS_RUNTIME_ERROR, judge_pb2.TEST_STATUS_MEMORY_LIMIT},
    "runtime_error": {judge_pb2.TEST_STATUS_RUNTIME_ERROR, judge_pb2.TEST_STATUS_MEMORY_LIMIT},
}
"""What a filed verdict says of the first test that fails: problem setters run the tests in order and stop there."""

CONTEST_KINDS = [
    *((language, filed) for language in ("cpp", "python") for filed in ("accepted", "wrong_answer")),
    ("cpp", "time_limit_exceeded"), ("python", "partially_accepted"),
]  # fmt: skip

KNOWN_DIFFERENCES = {
    "karwa2023/navettes/2/naive.cpp": (
        "success", "filed as too slow; compiled with -O2 it stays under its 0.5 s of CPU",
    ),
    "swedish-olympiad-2009/boi/beetle/3/beetle_js.cc": (
        "success", "filed as too slow for 12 s; by itself it takes 11 to 14 s of CPU on one busy machine",
    ),
}  # fmt: skip
"""Program -> the verdict that is excused, and why it is another one. At most 2 % of the 209 programs."""


def as_filed(verdict: judge_pb2.Verdict, expected: str) -> bool:
    """Return whether a verdict is the filed one; `partially_accepted` must fail some test, whichever way."""
    if expected == "accepted":
        return verdict.judged and verdict.accepted
    first = next((test.status for test in verdict.tests if test.status != judge_pb2.TEST_STATUS_SUCCESS), None)
    return verdict.judged and first is not None and (expected == "partially_accepted" or first in FILED[expected])


def in_sample(problem: Problem) -> bool:
    """Pick the small problems: seconds instead of minutes."""
    truth = problem.ground_truth
    assert isinstance(truth, StdioTests)
    quick = (problem.limits.time_seconds or 0) <= 1 and truth.count <= SAMPLED_TESTS
    return ALL_DATA or (quick and sum(map(len, truth.inputs)) <= SAMPLED_BYTES)


@pytest.mark.timeout(6000 if ALL_DATA else 600)
async def test_contest_programs_get_the_verdict_that_they_were_filed_under(judge: str) -> None:
    requests, filed = {}, {}
    kinds: Counter[tuple[str, str]] = Counter()
    for problem, submissions in contests_with_submissions():
        if not in_sample(problem):
            continue
        for number, submission in enumerate(submissions):
            kind = submission["lang"], submission["expected"]
            if kinds[kind] == SAMPLED_PROGRAMS and not ALL_DATA:
                continue
            kinds[kind] += 1
            name = f"{problem.problem_id}/{number}/{submission['name']}"  # names repeat
            requests[name] = request_of(problem, submission["code"], language=submission["lang"], stop_after_timeouts=1)
            filed[name] = submission["expected"]
    assert set(CONTEST_KINDS) <= kinds.keys()
    verdicts = await judge_until_judged(judge, requests)
    different = {
        name: f"filed as {filed[name]}, judged {told(verdict)}"
        for name, verdict in verdicts.items()
        if not as_filed(verdict, filed[name])
    }
    excused = {
        name for name, (said, _) in KNOWN_DIFFERENCES.items() if name in different and told(verdicts[name]) == said
    }
    unknown = [f"{name}: {text}" for name, text in different.items() if name not in excused]
    assert not unknown, "\n".join(unknown)  # pytest cuts a long dict
    assert len(KNOWN_DIFFERENCES) <= 0.02 * 209


async def test_verdicts_are_the_same_at_1_and_at_64_in_flight(judge: str) -> None:
    requests = {}
    problems = {problem.problem_id: problem for problem, _ in humaneval_with_solutions()}
    for row in json_rows(data_file("completions/humaneval_ollama-codellama_7b.jsonl.gz"))[:80]:
        name = str(row["task_id"])
        requests[name] = request_of(problems[name], str(row["completion"]), mode=APPEND)
    alone, together = [await judge_all(judge, requests, in_flight=number) for number in (1, 64)]
    assert {name: v.final_status for name, v in alone.items()} == {name: v.final_status for name, v in together.items()}
