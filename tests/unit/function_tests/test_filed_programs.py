"""The function programs of the folder `verdicts2` of the real data, each filed with the verdict that is right."""

import functools
import json
from collections.abc import Iterator

import pytest
from builders.data import ALL_DATA, data_file
from builders.judge.function_tests import WarmForks, judge

from evalrun_judge.extraction import SubmissionMode
from evalrun_judge.families.function import program_after
from evalrun_judge.submission import AssertTests, CheckTest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CLASSES = (
    *("forging-equality", "methods-and-escapes", "monkeypatching-and-wire", "more-forging", "nondeterminism"),
    *("prompt-classes-and-own-process", "right-values", "surrogates", "wire-2", "numpy"),
)
KNOWN: dict[str, str] = {"np-float32": "numpy 2 itself says that its float32 of 0.1 equals 0.1"}
"""Programs that are judged otherwise than filed, with the reason; `docs/verdicts.md` lists the kinds."""

SLOW = {"es-unsettled-time"}
"""Programs that use up the minute of a test's rounds: with EVALRUN_TEST_ALL_DATA only."""

SECONDS = 2.0
"""Limit per step."""

ENDLESS = {"es-endless-len": 1.0, "es-signal-stop": 1.0, "es-sleep-arg": 1.0}
"""Limits of programs that never end, of which the judge tries several rounds."""


@pytest.fixture(scope="module")
def forks() -> Iterator[WarmForks]:
    warm = WarmForks()
    yield warm
    warm.close()


@pytest.fixture(scope="module")
def forks_with_numpy() -> Iterator[WarmForks]:
    warm = WarmForks("numpy")
    yield warm
    warm.close()


@pytest.mark.parametrize("name", CLASSES)
def test_a_filed_program_gets_the_verdict_that_is_right(
    forks: WarmForks, forks_with_numpy: WarmForks, name: str
) -> None:
    chosen = forks_with_numpy if name == "numpy" else forks
    different, judged = [], 0
    for line in data_file(f"verdicts2/{name}.jsonl").read_text().splitlines():
        row = json.loads(line)
        truth, response = row["problem"]["ground_truth"], row["response"]
        problem = row["problem"].get("problem_id") or row["problem"]["task_id"]
        if "completion" not in response or not {"test", "test_list"} & truth.keys():
            continue
        if problem in SLOW and not ALL_DATA:
            continue
        prompt, mode = str(truth.get("prompt", "")), SubmissionMode(response["mode"])
        tests: AssertTests | CheckTest
        if "test_list" in truth:
            tests = AssertTests(truth["test_list"], truth["test_setup_code"], truth["entry_point"])
        else:
            tests = CheckTest(prompt, truth["test"], truth["entry_point"])
        program = program_after(prompt, response["completion"], mode)
        execute = functools.partial(chosen.run, seconds=ENDLESS.get(problem, SECONDS))
        outcomes = judge(tests, program, execute=execute).outcomes
        said = "accept" if all(outcome.status == "success" for outcome in outcomes) else "reject"
        if any(outcome.status == "api_error" for outcome in outcomes):
            said = "notjudged"
        judged += 1
        if row["expected"] not in (said, "any") and problem not in KNOWN:
            reasons = "; ".join(f"{outcome.status}: {outcome.reason[:150]}" for outcome in outcomes)
            different.append(f"{problem}: {row['expected']}, judged {said}: {reasons}")
    assert not different, "\n".join(different)
    assert judged > 0
