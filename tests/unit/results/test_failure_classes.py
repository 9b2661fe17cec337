"""Classes of failed answers."""

from typing import Any, cast

import pytest
from builders.results.samples import sample_result, with_changes

from evalrun_proto.judge.v1 import judge_pb2 as pb
from evalrun_results.failure_classes import EXAMPLES, FailureLog
from evalrun_results.samples import SampleResult


def failed(
    status: str, response: str = "text", *, code: str = "", stderr: str = "", finish_reason: str = "stop"
) -> SampleResult:
    test = pb.TestResult(status=pb.TEST_STATUS_RUNTIME_ERROR, stderr=pb.CutText(text=stderr))
    verdict = pb.Verdict(
        judged=True, final_status=pb.FinalStatus.Value(f"FINAL_STATUS_{status.upper()}"), code=code, tests=[test]
    )
    return with_changes(sample_result(0), verdict=verdict, response=response, finish_reason=finish_reason)


def classes_in(log: FailureLog) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", log.as_json("humaneval"))


@pytest.mark.parametrize(
    ("result", "name"),
    [
        (failed("empty_output", "  \n"), "empty"),
        (failed("empty_output", "Let me think"), "prose"),
        (failed("empty_output", "Let me think", finish_reason="length"), "cut"),
        (failed("syntax_error", code="def f(x):", finish_reason="length"), "cut"),
        (failed("syntax_error", code=r"def f(x):\n    y = x\n    return y"), "escaped"),
        (failed("empty_output", r"def f(x):\n    y = x\n    return y"), "escaped"),
        (failed("syntax_error", code="print('a\\n')\nprint('b\\n')\nprint("), None),
        (failed("runtime_error", stderr="NameError: name 'math' is not defined"), "import"),
        (failed("wrong_answer", stderr="NameError: name 'List' is not defined"), "import"),
        (failed("runtime_error", stderr="NameError: name 'my_own' is not defined"), None),
        (failed("wrong_answer"), None),
        (sample_result(0), None),
        (sample_result(0, statuses=None), None),
        (with_changes(failed("empty_output", ""), repeat=1), None),
    ],
)
def test_a_failed_answer_has_the_first_class_that_holds(result: SampleResult, name: str | None) -> None:
    log = FailureLog()
    log.add(result)
    assert [found["class"] for found in classes_in(log)] == ([] if name is None else [name])


def test_classes_are_ordered_by_frequency_with_the_first_examples() -> None:
    log = FailureLog()
    for problem in range(9):
        log.add(with_changes(failed("empty_output", ""), problem_id=f"p{8 - problem}"))
    log.add(failed("empty_output", "Sorry."))
    empty, prose = classes_in(log)
    assert (empty["class"], empty["answers"], prose["answers"]) == ("empty", 9, 1)
    assert empty["examples"] == [{"problem_id": f"p{number}", "sample": 0} for number in range(EXAMPLES)]
