"""HumanEval, MBPP and recorded completions, judged through both harnesses in warm forks with limits."""

import itertools
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from builders.data import ALL_DATA, data_file, json_rows, mbpp_with_solutions
from builders.judge.function_tests import Judged, WarmForks, check_of, judge

from evalrun_data.records import AssertTests as RecordedAsserts
from evalrun_judge.function_tests.session import AssertTests, CheckTest, recording_key

# The data's own: compiling a program with "\\d" in an ordinary string warns.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::SyntaxWarning"),
]

SECONDS = 10.0
RECORDED_SECONDS = 5.0
"""What the recorded verdicts were reached with."""


@dataclass
class Case:
    name: str
    tests: CheckTest | AssertTests
    code: str
    seconds: float = SECONDS


COMPLETIONS = slice(None, None, 1 if ALL_DATA else 4)
"""`tests/integration/judge/test_judge_real_data.py` judges all of them, by the same harness behind a gateway."""


class Judges:
    """Two processes at work, one for each core, that keep recordings as a gateway does."""

    def __init__(self) -> None:
        self._forks = [WarmForks(), WarmForks()]
        self._recordings: dict[str, bytes | None] = {}

    def judge(self, cases: list[Case]) -> dict[str, Judged]:
        halves = [itertools.islice(cases, start, None, 2) for start in (0, 1)]
        with ThreadPoolExecutor(2) as pool:
            parts = pool.map(self._judge, self._forks, halves)
        return {name: judged for part in parts for name, judged in part.items()}

    def _judge(self, forks: WarmForks, cases: Iterator[Case]) -> dict[str, Judged]:
        return {case.name: self._one(forks, case) for case in cases}

    def _one(self, forks: WarmForks, case: Case) -> Judged:
        key = recording_key(case.tests, 7)

        def execute(mode: str, code: str, stdin: bytes):  # type: ignore[no-untyped-def]  # noqa: ANN202 - as `forks.run`
            return forks.run(mode, code, stdin, case.seconds)

        judged = judge(case.tests, case.code, execute=execute, recorded=self._recordings.get(key))
        self._recordings[key] = judged.recording
        return judged

    def close(self) -> None:
        for forks in self._forks:
            forks.close()


@pytest.fixture(scope="module")
def judges() -> Iterator[Judges]:
    both = Judges()
    yield both
    both.close()


@pytest.fixture(scope="module")
def humaneval() -> dict[str, Mapping[str, object]]:
    rows = json_rows(data_file("humaneval/HumanEval.jsonl.gz"))
    return {str(row["task_id"]): row for row in rows}


def differences(found: dict[str, Judged], accepted: Mapping[str, bool]) -> dict[str, object]:
    assert found.keys() == accepted.keys()
    return {
        name: judged.outcomes
        for name, judged in found.items()
        if all(status == "success" for status in judged.statuses) != accepted[name]
    }


def test_humanevals_canonical_solutions_are_accepted(
    judges: Judges, humaneval: dict[str, Mapping[str, object]]
) -> None:
    cases = [
        Case(name, check_of(row), f"{row['prompt']}{row['canonical_solution']}") for name, row in humaneval.items()
    ]
    found = judges.judge(cases)
    assert len(found) == 164
    assert differences(found, dict.fromkeys(found, True)) == {}
    assert {len(judged.batches) for judged in found.values()} == {1}, "arguments that depend on earlier returns"


@pytest.mark.parametrize(
    ("file", "passes"),
    [
        ("humaneval_gpt-4_simple_a.jsonl.gz", 134),
        ("humaneval_ollama-codellama_7b.jsonl.gz", 47),
        ("humaneval_ollama-qwen2.5-coder_7b.jsonl.gz", 120),
    ],
)
def test_recorded_completions_get_the_recorded_verdict(
    judges: Judges, humaneval: dict[str, Mapping[str, object]], file: str, passes: int
) -> None:
    rows = json_rows(data_file(f"completions/{file}"))
    assert len(rows) == 164
    assert sum(bool(row["recorded"]) for row in rows) == passes
    chosen = rows[COMPLETIONS]
    recorded = {str(row["task_id"]): bool(row["recorded"]) for row in chosen}
    cases = []
    for row in chosen:
        problem = humaneval[str(row["task_id"])]
        before = str(problem["prompt"]) if row["mode"] == "append" else ""
        code = f"{before}{row['completion']}"
        cases.append(Case(str(row["task_id"]), check_of(problem), code, RECORDED_SECONDS))
    found = judges.judge(cases)
    assert set(recorded.values()) == {True, False}
    assert differences(found, recorded) == {}
    assert all("api_error" not in judged.statuses for judged in found.values())


MBPP_SAMPLE = {f"MBPP/{number}" for number in (*range(5, 975, 5), 367, 927)}
"""Every fifth, and two whose setup builds objects of the program's class and sets their attributes."""


@pytest.mark.timeout(180)
def test_the_reference_programs_of_mbpp_are_accepted(judges: Judges) -> None:
    cases = []
    for problem, code in mbpp_with_solutions("mbpp"):
        if not ALL_DATA and problem.problem_id not in MBPP_SAMPLE:
            continue
        truth = problem.ground_truth
        assert isinstance(truth, RecordedAsserts)
        tests = AssertTests(truth.test_list, truth.test_setup_code, truth.entry_point)
        cases.append(Case(problem.problem_id, tests, code))
    found = judges.judge(cases)
    assert len(found) == (974 if ALL_DATA else len(MBPP_SAMPLE))
    assert differences(found, dict.fromkeys(found, True)) == {}
