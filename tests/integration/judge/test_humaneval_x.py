"""HumanEval-X's rows in each language: right answers pass, empty ones and early exits do not."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from builders.data import ALL_DATA, write_jsonl
from builders.humaneval_x import ROWS, WHOLE
from builders.judge.sandbox import require_compiler
from builders.judge.services import judge_until_judged, services, told

from evalrun_data.readers import iter_source_rows
from evalrun_data.records import CheckTest, MainTest, Problem
from evalrun_executor.toolchain import COMPILERS
from evalrun_proto.judge.v1 import judge_pb2

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(3600 if ALL_DATA else 600)]

PUBLISHED = os.environ.get("EVALRUN_TEST_HUMANEVAL_X", "")
SAMPLED = 1 if ALL_DATA else 9
"""One of so many published problems is judged."""
LEAVES = {
    "cpp": "exit(0);", "go": "os.Exit(0); return xs", "java": "System.exit(0); return xs;",
    "javascript": "process.exit(0)", "python": "    import os; os._exit(0)", "rust": "std::process::exit(0);",
}  # fmt: skip
EXPLAINED = {
    "CPP/162": "needs OpenSSL",
    "CPP/22": "needs Boost", "CPP/137": "needs Boost",
    "JavaScript/162": "needs the package js-md5",
    "Rust/38": "needs a crate", "Rust/50": "needs a crate", "Rust/53": "needs a crate",
    "Rust/91": "needs a crate", "Rust/162": "needs a crate",
}  # fmt: skip
"""Published problems whose own solution is not accepted here."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with services(tmp_path_factory.mktemp("services")) as (gateway, _):
        yield gateway.address


def ask(problem: Problem, text: str, mode: judge_pb2.SubmissionMode.ValueType) -> judge_pb2.JudgeRequest:
    truth = problem.ground_truth
    submission = judge_pb2.Submission(text=text, mode=mode, language=problem.language)
    if isinstance(truth, CheckTest):
        return judge_pb2.JudgeRequest(submission=submission, check=judge_pb2.CheckTest(**truth.to_message()))
    assert isinstance(truth, MainTest)
    return judge_pb2.JudgeRequest(submission=submission, main=judge_pb2.MainTest(**truth.to_message()))


@pytest.mark.parametrize("language", ROWS)
async def test_answers_to_a_row_of_each_language_get_their_verdict(judge: str, language: str, tmp_path: Path) -> None:
    if language in COMPILERS:
        require_compiler(COMPILERS[language])
    source = str(write_jsonl(tmp_path / "rows.jsonl", [ROWS[language]]))
    ((problem, row),) = iter_source_rows(source, f"humaneval_x_{language}")
    solution, append = row.text("canonical_solution"), judge_pb2.SUBMISSION_MODE_APPEND
    wrong = solution.replace("2 * x", "2 * x + 1").replace("x *= 2", "x *= 3")
    assert wrong != solution
    requests = {
        "right, continued": ask(problem, solution + "\nthis is no code\n", append),
        "right, whole": ask(problem, f"```{language}\n{WHOLE[language]}\n```", judge_pb2.SUBMISSION_MODE_AUTO),
        "wrong": ask(problem, wrong, append),
        "ends early": ask(
            problem, LEAVES[language] + solution[solution.rindex("}") if "}" in solution else 0 :], append
        ),
    }
    if language == "python":
        del requests["right, continued"]  # nothing cuts Python's continuations
    verdicts = await judge_until_judged(judge, requests)
    found = [
        f"{name}: {told(verdict)}"
        for name, verdict in verdicts.items()
        if not verdict.judged or verdict.accepted is not name.startswith("right")
    ]
    assert not found, "\n".join(found)
    assert verdicts["wrong"].final_status == judge_pb2.FINAL_STATUS_WRONG_ANSWER
    assert verdicts["wrong"].forgeable is (language != "python")


@pytest.mark.skipif(not PUBLISHED, reason="EVALRUN_TEST_HUMANEVAL_X names no directory with HumanEval-X's files")
@pytest.mark.parametrize("language", ROWS)
async def test_published_solutions_are_accepted_or_explained(judge: str, language: str) -> None:
    name = {"javascript": "js"}.get(language, language)
    pairs = list(iter_source_rows(f"{PUBLISHED}/humaneval_{name}.jsonl.gz", f"humaneval_x_{language}"))
    assert len(pairs) == 164
    requests = {
        problem.problem_id: ask(problem, row.text("canonical_solution"), judge_pb2.SUBMISSION_MODE_APPEND)
        for problem, row in pairs[::SAMPLED]
        if not problem.ground_truth.explain_refusal(language)
    }
    verdicts = await judge_until_judged(judge, requests)
    found = [
        f"{name}: {told(verdict)}"
        for name, verdict in verdicts.items()
        if verdict.accepted is (name in EXPLAINED) or not verdict.judged
    ]
    assert not found, "\n".join(found)
