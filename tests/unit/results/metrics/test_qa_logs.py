import pytest
from builders.results.samples import EPOCH, sample_result, verdict, with_changes

from evalrun_results.outputs.qa_logs import QaLogs, QaOptions, error_breakdown, first_failed_case, qa_record

OPTIONS = QaOptions(temperature=0.0, max_new_tokens=2048)


def test_a_record_has_the_pages_fields() -> None:
    record = qa_record(sample_result(7, 0, ["success", "wrong_answer"], judged_after=0.25), OPTIONS)
    assert record == {
        "problem_id": "P/00007",
        "dataset": "humaneval",
        "sample": 0,
        "turn": 0,
        "prompt": "Solve P/00007.",
        "messages": [],
        "response": "```python\nprint('out')\n```",
        "ground_truth": {"inputs": ["in 0\n"], "outputs": ["out 0\n"]},
        "pass_ratio": 0.5,
        "accepted": False,
        "final_status": "wrong_answer",
        "not_judged_reason": "",
        "output_tokens": 100,
        "gen_time": 2.0,
        "total_judge_time": 1.0,
        "error_breakdown": {
            "passed": 1, "wrong_answer": 1, "timeout": 0, "runtime_error": 0, "syntax_error": 0, "memory_limit": 0,
            "empty_output": 0, "api_error": 0,
        },
        "execution_output": {
            "first_failed_case": {
                "case_index": 1, "status": "wrong_answer", "input": "in 1\n", "expected": "out 1\n",
                "actual": "other\n", "stderr": "", "reason": "",
            }
        },
        "metadata": {
            "model": "a-model",
            "temperature": 0.0,
            "max_new_tokens": 2048,
            "timestamp": "2025-10-09T08:53:20.250000+00:00",
        },
    }  # fmt: skip
    assert EPOCH == 1_760_000_000.0


@pytest.mark.parametrize(
    ("statuses", "empty", "expected"),
    [
        (["success", "timeout", "timeout"], False, {"passed": 1, "timeout": 2}),
        (["memory_limit", "runtime_error"], False, {"runtime_error": 2, "memory_limit": 1}),
        (["compile_error", "compile_timeout"], False, {"syntax_error": 2}),
        (["compile_error"], True, {"syntax_error": 1, "empty_output": 1}),
        (["api_error", "success"], False, {"api_error": 1, "passed": 1}),
    ],
)
def test_the_breakdown_counts_every_status(statuses: list[str], empty: bool, expected: dict[str, int]) -> None:
    counts = error_breakdown(verdict(statuses, empty=empty))
    assert {name: count for name, count in counts.items() if count} == expected


def test_the_first_failed_case_is_the_programs_failure_before_the_judges() -> None:
    case = first_failed_case(verdict(["success", "api_error", "timeout"]))
    assert case is not None
    assert (case["case_index"], case["status"]) == (2, "timeout")
    case = first_failed_case(verdict(["success", "api_error"]))
    assert case is not None
    assert case["case_index"] == 1
    assert first_failed_case(verdict(["success"])) is None
    assert first_failed_case(None) is None


def test_long_ground_truths_are_cut_and_say_so() -> None:
    truth = {"inputs": ["x" * 10_000, "short"], "outputs": ["1", "2"], "n": 3}
    record = qa_record(with_changes(sample_result(), ground_truth=truth), OPTIONS)
    assert record["ground_truth"] == {
        "inputs": ["x" * 4096 + "... [5904 more characters]", "short"], "outputs": ["1", "2"], "n": 3,
    }  # fmt: skip


def test_a_problem_that_was_not_judged_is_logged_with_its_reason() -> None:
    record = qa_record(sample_result(0, 0, None), OPTIONS)
    assert (record["accepted"], record["pass_ratio"], record["final_status"]) == (None, None, "api_error")
    assert record["not_judged_reason"] == "no sandbox answered"
    assert record["execution_output"] == {"first_failed_case": None}


def test_the_summary_says_which_strata_had_too_few() -> None:
    logs = QaLogs(OPTIONS)
    for problem in range(100):
        logs.add(sample_result(problem, 0, ["success"] if problem else ["timeout"]))
        logs.add(sample_result(problem, 0, ["runtime_error"], repeat=1))
    records, summary = logs.finish()
    assert [record["final_status"] for record in records["humaneval"]] == ["success"] * 19 + ["timeout"]
    assert isinstance(datasets := summary["datasets"], dict)
    assert isinstance(entry := datasets["humaneval"], dict)
    assert entry["total"] == 20
    assert isinstance(strata := entry["strata"], dict)
    assert strata["timeout"] == {"wanted": 2, "available": 1, "taken": 1}
    assert entry["notes"] == [
        "success: 19 instead of 4, for strata that had too few",
        "wrong_answer: 0 of 8 wanted; its places went to the others",
        "syntax_error: 0 of 4 wanted; its places went to the others",
        "runtime_error: 0 of 2 wanted; its places went to the others",
        "timeout: 1 of 2 wanted; its places went to the others",
    ]


def test_a_dataset_smaller_than_its_places_says_that_some_stayed_empty() -> None:
    logs = QaLogs(OPTIONS)
    for problem in range(3):
        logs.add(sample_result(problem))
    records, summary = logs.finish()
    assert len(records["humaneval"]) == 3
    assert "17 places stayed empty: the dataset has no more results" in str(summary)


def test_sample_with_several_turns_is_logged_with_its_last_answer() -> None:
    logs = QaLogs(OPTIONS)
    for problem, turns in ((0, 3), (1, 1), (2, 2)):
        for turn in range(turns):
            logs.add(with_changes(sample_result(problem, 0, ["wrong_answer"]), turn=turn))
    records, _ = logs.finish()
    assert [(record["problem_id"], record["turn"]) for record in records["humaneval"]] == [
        ("P/00000", 2), ("P/00001", 0), ("P/00002", 1),
    ]  # fmt: skip
