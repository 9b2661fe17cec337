"""The tests of a sample: named, or brought along."""

import json

import msgspec
import pytest

from evalrun_data.records import Problem, ServerTests, StdioTests
from evalrun_reward.samples import SampleTests, make_judging, make_submission
from evalrun_reward.wire import BatchRequest, Sample
from evalrun_runtime.exits import BadInputError

TRUTH = {"inputs": ["1\n"], "outputs": ["1\n"]}
KNOWN = Problem("contest", "p1", "Echo.", StdioTests(("a",), ("b",)))
SAME_ID = Problem("other", "p1", "Echo.", StdioTests(("a",), ("b",)))
AT_SERVER = Problem("server", "p2", "Echo.", ServerTests())


def sample(**fields: object) -> Sample:
    body = {"samples": [{"response": "x", **fields}]}
    return msgspec.json.decode(json.dumps(body).encode(), type=BatchRequest).samples[0]


def finder(*problems: Problem, comparator: str | None = None, time_limit: float | None = None) -> SampleTests:
    return SampleTests(problems, make_judging(comparator, time_limit), 1 << 20)


@pytest.mark.parametrize("raw", ['{"inputs": [1e400]}', '"[1,' + "[" * 100_000 + '"'])
def test_a_ground_truth_that_cannot_be_read_is_the_samples_own_fault(raw: str) -> None:
    """The batch's decoder passes over it, and an error of another kind failed the whole batch."""
    body = f'{{"samples": [{{"response": "x", "ground_truth": {raw}}}]}}'
    broken = msgspec.json.decode(body.encode(), type=BatchRequest).samples[0]
    with pytest.raises(BadInputError, match=r"^samples sample 7: field"):
        finder().of(broken, 7)


@pytest.mark.parametrize("truth", [TRUTH, json.dumps(TRUTH)])
def test_ground_truth_may_be_an_object_or_json(truth: object) -> None:
    request = finder().of(sample(ground_truth=truth, data_source="codecontests"), 0).whole
    assert [(test.input, test.expected_output) for test in request.stdio.tests] == [("1\n", "1\n")]
    assert request.limits.time_seconds == 10


def test_a_known_contest_problem_keeps_the_limit_of_its_kind() -> None:
    assert finder(KNOWN).of(sample(problem_id="p1"), 0).whole.limits.time_seconds == 30


def test_ground_truth_of_asserts_or_a_check_becomes_tests() -> None:
    asserts = {"assert_case": ["assert f(1) == 2"]}
    assert list(finder().of(sample(ground_truth=asserts), 0).whole.asserts.asserts) == ["assert f(1) == 2"]
    check = {"test": "def check(f):\n    assert f(1) == 2", "entry_point": "f"}
    assert finder().of(sample(ground_truth=check, prompt="def f(x):\n"), 0).whole.check.prompt == "def f(x):\n"


@pytest.mark.parametrize(
    "named",
    [
        {"dataset": "contest", "problem_id": "p1"},
        {"ground_truth": {"dataset": "contest", "problem_id": "p1"}},
        {"ground_truth": json.dumps({"problem_id": "p1"}), "dataset": "contest"},
        {"problem_id": "p1"},
    ],
)
def test_sample_that_names_a_known_problem_uses_its_tests(named: dict[str, object]) -> None:
    assert finder(KNOWN).of(sample(**named), 0).whole.stdio.tests[0].input == "a"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "names no problem_id and holds no ground_truth"),
        ({"problem_id": "nine"}, "unknown problem 'nine'"),
        ({"problem_id": "p1", "dataset": "none"}, "unknown problem 'p1' of dataset 'none'"),
        ({"problem_id": "p1"}, "in several datasets"),
        ({"problem_id": "p2"}, "a SandboxFusion server has them"),
        ({"ground_truth": "42"}, "an answer for a reward function, not tests"),
        ({"ground_truth": "{broken"}, "neither an object nor JSON"),
        ({"ground_truth": {"inputs": ["1"], "outputs": []}}, "1 inputs but 0 outputs"),
        ({"ground_truth": TRUTH, "language": "cobol"}, "field 'language'"),
    ],
)
def test_sample_that_cannot_be_judged_is_refused_with_the_reason(fields: dict[str, object], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        finder(KNOWN, SAME_ID, AT_SERVER).of(sample(**fields), 7)


def test_a_group_of_answers_shares_its_tests() -> None:
    tests = finder()
    first = tests.of(sample(ground_truth=TRUTH), 0)
    assert tests.of(sample(ground_truth=TRUTH, id="2"), 1) is first
    assert tests.of(sample(ground_truth=TRUTH, language="cpp"), 2) is not first


def test_large_tests_are_also_held_by_name_alone() -> None:
    large = {"inputs": ["x" * 70_000], "outputs": [""]}
    tests = finder().of(sample(ground_truth=large), 0)
    assert tests.named is not None
    assert tests.named.suite_digest == tests.whole.suite_digest != b""
    assert tests.named.ByteSize() < 1000


def test_the_services_comparator_and_limit_hold_where_the_problem_has_none() -> None:
    request = finder(comparator="verl", time_limit=2.5).of(sample(ground_truth=TRUTH), 0).whole
    assert (request.comparator.name, request.limits.time_seconds) == ("verl", 2.5)


def test_lone_surrogates_of_an_answer_are_replaced() -> None:
    odd = msgspec.structs.replace(sample(), response="a\ud800b", language="c++", truncated=True)
    submission = make_submission(odd, 0)
    assert (submission.text, submission.language, submission.truncated) == ("a\ufffdb", "cpp", True)
