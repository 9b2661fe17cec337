"""HumanEval in Go, Java, JavaScript, Rust and TypeScript: rows of MultiPL-E's shape, and solutions written for them."""

from pathlib import Path

import pytest
from builders.data import ALL_DATA, write_jsonl
from builders.judge.humaneval_languages import LANGUAGES, load_rows, load_solutions, write_answer
from builders.judge.sandbox import require_compiler
from builders.judge.services import judge_until_judged, told

from evalrun_data.readers import load_problems
from evalrun_data.records import MainTest
from evalrun_executor.toolchain import COMPILERS
from evalrun_proto.judge.v1 import judge_pb2

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(1800 if ALL_DATA else 600)]

SAMPLED = 15
"""One of so many problems is judged: a compiler takes a second. An odd number: both ways to answer occur."""
STUBBED = 9
"""For one of so many problems a stub is judged too; of the sample, for the first."""


def ask(truth: MainTest, language: str, text: str, mode: judge_pb2.SubmissionMode.ValueType) -> judge_pb2.JudgeRequest:
    return judge_pb2.JudgeRequest(
        submission=judge_pb2.Submission(text=text, mode=mode, language=language),
        main=judge_pb2.MainTest(prompt=truth.prompt, main=truth.main, entry_point=truth.entry_point),
    )


@pytest.mark.parametrize("language", LANGUAGES)
async def test_solutions_of_humaneval_are_accepted_and_stubs_are_not(
    judge_of_languages: str, language: str, tmp_path: Path
) -> None:
    require_compiler(COMPILERS[language])
    rows, solutions = load_rows(language), load_solutions(language)
    assert rows.keys() == solutions.keys()
    assert len(rows) >= 40
    problems = load_problems(str(write_jsonl(tmp_path / "multipl_e.jsonl", rows.values())))
    requests = {}
    for place, (problem, body) in enumerate(zip(problems, solutions.values(), strict=True)):
        truth = problem.ground_truth
        assert isinstance(truth, MainTest)
        if place % SAMPLED and not ALL_DATA:
            continue
        name = problem.problem_id
        # As a base model goes on after the prompt, or as a chat model answers.
        if place % 2:
            requests[name] = ask(truth, language, body, judge_pb2.SUBMISSION_MODE_APPEND)
        else:
            answer = write_answer(language, truth.prompt, body)
            requests[name] = ask(truth, language, answer, judge_pb2.SUBMISSION_MODE_AUTO)
        if place % (STUBBED if ALL_DATA else len(rows)) == 0:
            closed = "" if language in ("java", "rust") else "}"
            requests[f"{name} empty"] = ask(truth, language, closed, judge_pb2.SUBMISSION_MODE_APPEND)
    verdicts = await judge_until_judged(judge_of_languages, requests)
    wrong = [
        f"{name}: {told(verdict)}"
        for name, verdict in verdicts.items()
        if not verdict.judged or verdict.accepted is name.endswith("empty")
    ]
    assert not wrong, "\n".join(wrong)
