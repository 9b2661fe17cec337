"""A problem and an answer -> what the judge is asked."""

from dataclasses import replace

import pytest

from evalrun_api.v1alpha1 import Comparator, Dataset, TestLimits
from evalrun_client.judge_request import Answer, choose_comparator, judge_request
from evalrun_data.records import AssertTests, CheckTest, MainTest, Problem, ProblemComparator, StdioTests
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_registry.limits import PartialLimits

STDIO = Problem("d", "p", "Solve.", StdioTests(("1\n", "2\n"), ("3\n", "4\n")))
ANSWER = Answer("```python\nprint(1)\n```")


def dataset(**fields: object) -> Dataset:
    return Dataset.model_validate({"name": "d", "source": "d.jsonl", **fields})


def test_a_stdin_problem_goes_with_its_pairs_and_the_dataset_decides_the_rest() -> None:
    spec = dataset(
        limits=TestLimits(time_seconds=7, memory_mib=99, output_kib=8),
        comparator=Comparator(name="tokens", case_sensitive=True, abs="1e-3"),
        stop_after_timeouts=5,
    )
    request = judge_request("run", spec, STDIO, ANSWER)
    assert [(t.input, t.expected_output) for t in request.stdio.tests] == [("1\n", "3\n"), ("2\n", "4\n")]
    assert (request.run, request.stop_after_timeouts, request.submission.language) == ("run", 5, "python")
    assert request.submission.mode == judge_pb2.SUBMISSION_MODE_AUTO
    assert request.limits == judge_pb2.Limits(time_seconds=7, memory_mib=99, output_kib=8)
    assert request.comparator == judge_pb2.Comparator(name="tokens", case_sensitive=True, abs=1e-3)


def test_record_of_a_problem_overrides_the_dataset() -> None:
    problem = Problem(
        "d", "p", "Solve.", STDIO.ground_truth, language="cpp", limits=PartialLimits(time_seconds=2.5),
        comparator=ProblemComparator("tokens", rel=0.5),
    )  # fmt: skip
    spec = dataset(limits=TestLimits(time_seconds=7, memory_mib=99), comparator=Comparator(name="exact"))
    request = judge_request("run", spec, problem, ANSWER)
    assert (request.limits.time_seconds, request.limits.memory_mib, request.limits.output_kib) == (2.5, 99, 65536)
    assert request.comparator == judge_pb2.Comparator(name="tokens", rel=0.5)
    assert request.submission.language == "cpp"


def test_answers_are_cut_at_the_limit_of_the_dataset() -> None:
    assert judge_request("run", dataset(), STDIO, ANSWER).submission.max_characters == 0
    assert judge_request("run", dataset(max_answer_characters=99), STDIO, ANSWER).submission.max_characters == 99


def test_a_limit_may_be_a_fraction_of_a_second() -> None:
    plain = Problem("d", "p", "Solve.", STDIO.ground_truth)
    request = judge_request("run", dataset(limits=TestLimits(time_milliseconds=2500)), plain, ANSWER)
    assert request.limits.time_seconds == 2.5


def test_an_answers_own_mode_and_language_win_and_a_cut_answer_is_marked() -> None:
    answer = Answer("int main(){}", mode=judge_pb2.SUBMISSION_MODE_STANDALONE, language="c", truncated=True)
    submission = judge_request("run", dataset(), STDIO, answer).submission
    assert (submission.language, submission.truncated) == ("c", True)
    assert submission.mode == judge_pb2.SUBMISSION_MODE_STANDALONE


def test_prelude_is_sent_with_the_answer() -> None:
    problem = Problem("d", "p", "Solve.", StdioTests(("1",), ("1",), prelude="import math\n"))
    assert judge_request("run", dataset(), problem, ANSWER).submission.prelude == "import math\n"
    assert not judge_request("run", dataset(), STDIO, ANSWER).submission.prelude


@pytest.mark.parametrize(
    ("truth", "form", "seconds"),
    [
        (STDIO.ground_truth, "stdio", 30),
        (CheckTest("def f():", "def check(f): ...", "f"), "check", 10),
        (AssertTests(("assert f() == 1",), "import math", "f"), "asserts", 10),
        (MainTest("int f() {", "int main() {}", "f"), "main", 10),
    ],
)
def test_each_family_has_its_form_and_default_limits(
    truth: StdioTests | CheckTest | AssertTests | MainTest, form: str, seconds: float
) -> None:
    request = judge_request("run", dataset(), Problem("d", "p", "Solve.", truth), ANSWER)
    assert request.WhichOneof("tests") == form
    assert (request.limits.time_seconds, request.limits.memory_mib) == (seconds, 1024)
    assert not request.HasField("comparator")


def test_comparator_is_case_sensitive_unless_the_dataset_or_the_run_sets_another() -> None:
    """abc380_d asks for a string with exchanged case: without case, the wrong answer passes."""
    plain = STDIO
    theirs = replace(plain, comparator=ProblemComparator("standard", case_sensitive=False, by_format=True))
    own = replace(plain, comparator=ProblemComparator("tokens", abs=0.1))
    asked = dataset(comparator=Comparator(name="exact"))
    assert choose_comparator(dataset(), plain) is None
    assert choose_comparator(dataset(), theirs) == judge_pb2.Comparator(name="standard", case_sensitive=False)
    assert choose_comparator(asked, theirs) == judge_pb2.Comparator(name="exact")
    assert choose_comparator(asked, own) == judge_pb2.Comparator(name="tokens", abs=0.1)
