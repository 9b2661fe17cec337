"""Builders of judged samples: what the aggregator's metrics, QA logs and outputs are tested with."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from evalrun_proto.judge.v1 import judge_pb2 as pb
from evalrun_results.metrics.accumulator import DatasetMetrics, MetricOptions, MetricsAccumulator
from evalrun_results.samples import SampleResult

EPOCH = 1_760_000_000.0
"""Unix seconds at which built runs send their first request."""

TEST_STATUS_OF = {
    "success": pb.TEST_STATUS_SUCCESS,
    "wrong_answer": pb.TEST_STATUS_WRONG_ANSWER,
    "runtime_error": pb.TEST_STATUS_RUNTIME_ERROR,
    "timeout": pb.TEST_STATUS_TIMEOUT,
    "assumed_timeout": pb.TEST_STATUS_ASSUMED_TIMEOUT,
    "memory_limit": pb.TEST_STATUS_MEMORY_LIMIT,
    "compile_error": pb.TEST_STATUS_COMPILE_ERROR,
    "compile_timeout": pb.TEST_STATUS_COMPILE_TIMEOUT,
    "api_error": pb.TEST_STATUS_API_ERROR,
}
_FINAL_OF = {
    "success": "success",
    "compile_error": "syntax_error",
    "compile_timeout": "syntax_error",
    "memory_limit": "runtime_error",
    "assumed_timeout": "timeout",
}
_PRECEDENCE = ("syntax_error", "runtime_error", "timeout", "wrong_answer", "api_error", "success")


def one_test(status: str = "success", case_index: int = 0, *, cpu_time: float = 0.5) -> pb.TestResult:
    """Make one test's record; its texts are short and tell which test it was."""
    return pb.TestResult(
        case_index=case_index,
        status=TEST_STATUS_OF[status],
        ran=True,
        input=_text(f"in {case_index}\n"),
        expected_output=_text(f"out {case_index}\n"),
        stdout=_text(f"out {case_index}\n" if status == "success" else "other\n"),
        stderr=_text("" if status in {"success", "wrong_answer"} else "Traceback\n"),
        exit_code=0 if status in {"success", "wrong_answer"} else 1,
        duration=cpu_time * 1.5,
        cpu_time=cpu_time,
        compile_stderr=_text(""),
    )


def verdict(statuses: Sequence[str] = ("success",), *, cpu_time: float = 0.5, empty: bool = False) -> pb.Verdict:
    finals = {_FINAL_OF.get(status, status) for status in statuses}
    final = "empty_output" if empty else next(name for name in _PRECEDENCE if name in finals)
    unknown = statuses.count("api_error")
    passed = statuses.count("success")
    made = pb.Verdict(
        final_status=pb.FinalStatus.Value(f"FINAL_STATUS_{final.upper()}"),
        judged=unknown == 0 or passed + unknown < len(statuses),
        accepted=passed == len(statuses) and not empty,
        tests=[one_test(status, index, cpu_time=cpu_time) for index, status in enumerate(statuses)],
        code="" if empty else "print('out')\n",
        extraction=pb.EXTRACTION_METHOD_NONE if empty else pb.EXTRACTION_METHOD_TAGGED_BLOCK,
        containment_level="full",
    )
    if unknown == 0:
        made.pass_ratio = 0.0 if empty else passed / len(statuses)
        made.pass_ratio_high = made.pass_ratio
    return made


def sample_result(
    problem: int | str = 0,
    sample: int = 0,
    statuses: Sequence[str] | None = ("success",),
    *,
    dataset: str = "humaneval",
    repeat: int = 0,
    empty: bool = False,
    output_tokens: int | None = 100,
    gen_seconds: float | None = 2.0,
    judged_after: float = 10.0,
    cpu_time: float = 0.5,
) -> SampleResult:
    """Make one sample's result. statuses: of its tests; None where there is no verdict at all."""
    name = problem if isinstance(problem, str) else f"P/{problem:05d}"
    return SampleResult(
        dataset=dataset,
        problem_id=name,
        sample=sample,
        turn=0,
        repeat=repeat,
        prompt=f"Solve {name}.",
        response="```python\nprint('out')\n```",
        ground_truth={"inputs": ["in 0\n"], "outputs": ["out 0\n"]},
        difficulty="easy",
        model="a-model",
        finish_reason="stop",
        prompt_tokens=20,
        output_tokens=output_tokens,
        gen_seconds=gen_seconds,
        started_at=EPOCH,
        judged_at=None if statuses is None else EPOCH + judged_after,
        verdict=None if statuses is None else verdict(statuses, cpu_time=cpu_time, empty=empty),
        not_judged_reason="no sandbox answered" if statuses is None else "",
        mode="auto",
        language="python",
    )


def with_changes(result: SampleResult, **changes: object) -> SampleResult:
    return replace(result, **changes)  # type: ignore[arg-type]  # dataclasses.replace checks the names at run time


def _text(text: str) -> pb.CutText:
    return pb.CutText(text=text, full_length=len(text.encode()))


def compute_metrics(results: Iterable[SampleResult], options: MetricOptions) -> dict[str, DatasetMetrics]:
    accumulator = MetricsAccumulator()
    for result in results:
        accumulator.add(result)
    return accumulator.finish(options)
