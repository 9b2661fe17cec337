"""What a log of Inspect says of a sample and of a run, and the file that holds it."""

import io
import json
import zipfile
from typing import Any

import msgspec
import pytest
from builders.results.samples import compute_metrics, sample_result, with_changes

from evalrun_results.inspect_log.header import LoggedRun, LogTotals, Status, make_header
from evalrun_results.inspect_log.log_file import write_log
from evalrun_results.inspect_log.samples import AskedProblem, make_sample, make_summary
from evalrun_results.metrics.accumulator import MetricOptions
from evalrun_results.outputs.result_row import result_row
from evalrun_results.samples import SampleResult

CHAT = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Write f."})
ASKED = AskedProblem("def f():", CHAT, "as one text", "hard", ("graphs", "greedy"))
SECRETS = ("in 1", "out 1", "Traceback")


def logged(*turns: SampleResult, asked: AskedProblem = ASKED, **flags: bool) -> Any:
    rows = [msgspec.to_builtins(result_row(turn)) for turn in turns]
    return make_sample(rows, asked, "run", **({"with_tests": False, "has_ended": True} | flags))


def a_run(status: Status = "success", summary: Any = None, **more: Any) -> LoggedRun:
    when = "2026-01-01T00:00:00+00:00"
    return LoggedRun("r", "humaneval", "a/model", when, when, when, status, "0.1.0", {}, summary, **more)


def written(samples: list[Any], run: LoggedRun | None = None) -> dict[str, Any]:
    file = io.BytesIO()
    write_log(file, run or a_run(), samples)
    with zipfile.ZipFile(file) as log:
        return {name: json.loads(log.read(name)) for name in log.namelist()}


def test_sample_has_the_answer_its_tokens_and_its_times() -> None:
    sample = logged(sample_result("a/b", 2))
    assert (sample["id"], sample["epoch"]) == ("a/b", 3)
    assert sample["input"] == [*CHAT]
    assert [message["role"] for message in sample["messages"]] == ["system", "user", "assistant"]
    output = sample["output"]
    assert output["completion"] == output["choices"][0]["message"]["content"] == "```python\nprint('out')\n```"
    assert output["choices"][0]["stop_reason"] == "stop"
    assert output["usage"] == {"input_tokens": 20, "output_tokens": 100, "total_tokens": 120}
    assert sample["model_usage"] == {"a-model": output["usage"]}
    assert (sample["total_time"], sample["working_time"]) == (10.0, 2.0)
    assert sample["metadata"]["difficulty"] == "easy"
    assert sample["metadata"]["tags"] == ["graphs", "greedy"]


@pytest.mark.parametrize(
    ("changes", "asked", "given"),
    [
        ({}, AskedProblem(messages=CHAT[1:]), "Write f."),
        ({}, AskedProblem(sent="def f():"), "def f():"),
        ({"started_at": None}, ASKED, "def f():"),
        ({}, AskedProblem(), ""),
    ],
)
def test_sample_input_is_the_prompt_as_it_was_sent(changes: dict[str, Any], asked: AskedProblem, given: str) -> None:
    assert logged(with_changes(sample_result(), **changes), asked=asked)["input"] == given


@pytest.mark.parametrize(
    ("statuses", "value", "ratio"), [(["success"], "C", 1.0), (["success", "wrong_answer"], "I", 0.5)]
)
def test_sample_judged_has_scores(statuses: list[str], value: str, ratio: float) -> None:
    scores = logged(sample_result(statuses=statuses))["scores"]
    assert (scores["accepted"]["value"], scores["pass_ratio"]["value"]) == (value, ratio)
    assert "score" not in scores


@pytest.mark.parametrize("statuses", [None, ["api_error"]])
def test_sample_not_judged_has_no_score_and_no_error(statuses: list[str] | None) -> None:
    sample = logged(sample_result(statuses=statuses))
    assert sample["scores"] == {}
    assert "error" not in sample


@pytest.mark.parametrize(
    ("has_ended", "started_at", "is_error"), [(True, None, True), (True, 5.0, False), (False, None, False)]
)
def test_sample_without_an_answer_is_an_error_once_the_run_has_ended(
    has_ended: bool, started_at: float | None, is_error: bool
) -> None:
    missing = with_changes(sample_result(statuses=None), response="", started_at=started_at)
    sample = logged(missing, has_ended=has_ended)
    assert ("error" in sample) == is_error
    if is_error:
        assert sample["error"]["message"] == make_summary(sample)["error"] == "no sandbox answered"


@pytest.mark.parametrize(
    ("finish_reason", "stop_reason"), [("length", "max_tokens"), ("", "unknown"), ("new", "unknown")]
)
def test_sample_stop_reason_is_one_that_inspect_knows(finish_reason: str, stop_reason: str) -> None:
    sample = logged(with_changes(sample_result(), finish_reason=finish_reason))
    assert sample["output"]["choices"][0]["stop_reason"] == stop_reason


def test_sample_without_known_tokens_has_no_usage() -> None:
    sample = logged(with_changes(sample_result(), prompt_tokens=None))
    assert "usage" not in sample["output"]
    assert sample["model_usage"] == {}
    assert sample["metadata"]["output_tokens"] == 100


def test_sample_names_the_failed_test_and_holds_its_texts_only_on_request() -> None:
    result = sample_result(statuses=["success", "runtime_error", "wrong_answer"])
    closed, opened = logged(result), logged(result, with_tests=True)
    assert closed["metadata"]["failed_test"] == {"case_index": 1, "status": "runtime_error"}
    assert not [text for text in SECRETS if text in json.dumps(closed)]
    assert opened["metadata"]["failed_test"]["input"] == "in 1\n"
    assert not [text for text in SECRETS if text in json.dumps(make_summary(opened))]


def test_sample_of_several_turns_is_scored_by_the_first() -> None:
    first = sample_result(statuses=["wrong_answer"])
    second = with_changes(sample_result(), turn=1, response="better")
    sample = logged(first, second)
    assert sample["scores"]["accepted"]["value"] == "I"
    assert sample["output"]["completion"] == first.response
    assert sample["metadata"]["later_turns"] == [
        {"turn": 1, "response": "better", "judged": True, "accepted": True, "final_status": "success"}
    ]


def test_summary_cuts_long_texts() -> None:
    long = logged(with_changes(sample_result(), response="word " * 5000), asked=AskedProblem(sent="x" * 9000))
    summary: Any = make_summary(long)
    assert len(summary["input"]) < 5200
    assert "output" not in summary
    assert "messages" not in summary


@pytest.mark.parametrize("odd", ["\x1b[2Jgone\x07", "a\0b", "\N{PILE OF POO} \u2028 ]]>", '"\\u0041'])
def test_log_keeps_control_characters_unchanged(odd: str) -> None:
    members = written([logged(with_changes(sample_result(), response=odd))])
    assert members["samples/P/00000_epoch_1.json"]["output"]["completion"] == odd


def test_log_replaces_lone_surrogates_and_the_end_of_names() -> None:
    asked = AskedProblem(sent="half \ud83d of one")
    members = written([logged(sample_result("a\0b/../c"), asked=asked)])
    sample = members["samples/a\ufffdb/../c_epoch_1.json"]
    assert (sample["id"], sample["input"]) == ("a\ufffdb/../c", "half \ufffd of one")


def test_log_has_each_sample_once_and_the_same_bytes_each_time() -> None:
    samples = [logged(sample_result(problem, epoch)) for problem in range(3) for epoch in range(2)]
    members = written(samples)
    assert sorted(name for name in members if name.startswith("samples/")) == sorted(
        f"samples/P/{problem:05d}_epoch_{epoch}.json" for problem in range(3) for epoch in (1, 2)
    )
    assert [(each["id"], each["epoch"]) for each in members["summaries.json"]] == [
        (each["id"], each["epoch"]) for each in samples
    ]
    assert members["header.json"]["eval"]["config"] == {"epochs": 2}
    assert members["header.json"]["eval"]["dataset"]["sample_ids"] == ["P/00000", "P/00001", "P/00002"]
    first, second = io.BytesIO(), io.BytesIO()
    for file in (first, second):
        write_log(file, a_run(), iter(samples))
    assert first.getvalue() == second.getvalue()
    assert len({each["uuid"] for each in samples}) == 6


def test_log_of_no_samples_is_written() -> None:
    assert written([])["summaries.json"] == []


def test_header_has_the_metrics_with_their_intervals_under_their_scorer() -> None:
    results = [
        sample_result(0),
        sample_result(1, statuses=["success", "wrong_answer"]),
        sample_result(2, statuses=None),
    ]
    summary = compute_metrics(results, MetricOptions())["humaneval"].summary()
    totals = LogTotals()
    for result in results:
        totals.add(logged(result))
    found: Any = make_header(a_run(summary=summary), totals)["results"]
    accepted, ratio = found["scores"]
    assert (accepted["name"], accepted["scored_samples"], accepted["unscored_samples"]) == ("accepted", 2, 1)
    metrics = accepted["metrics"]
    assert metrics["accepted_at_1"]["value"] == 0.5
    assert metrics["accepted_at_1"]["metadata"]["method"] == "wilson"
    assert metrics["accepted_at_1_low"]["value"] == metrics["accepted_at_1"]["metadata"]["low"] < 0.5
    assert ratio["metrics"]["pass_ratio_mean"]["value"] == 0.75
    assert "pass_ratio_mean" not in metrics
    assert found["headline"] == {"scorer": "accepted", "metric": "accepted_at_1"}
    assert found["metadata"]["coverage"] == pytest.approx(2 / 3)
    assert None not in [each["value"] for each in metrics.values()]


@pytest.mark.parametrize("status", ["started", "cancelled"])
def test_header_of_an_unfinished_run_has_no_results(status: Status) -> None:
    header = make_header(a_run(status), LogTotals())
    assert header["status"] == status
    assert "results" not in header
    assert "error" not in header


def test_header_sums_the_tokens_that_are_known_by_model() -> None:
    totals = LogTotals()
    for result in (
        sample_result(0), sample_result(1), with_changes(sample_result(2), prompt_tokens=None),
        with_changes(sample_result(3), model="other"),
    ):  # fmt: skip
        totals.add(logged(result))
    stats: Any = make_header(a_run("error", error="two of three servers"), totals)
    assert stats["stats"]["model_usage"]["a-model"] == {"input_tokens": 40, "output_tokens": 200, "total_tokens": 240}
    assert stats["stats"]["model_usage"]["other"]["total_tokens"] == 120
    assert stats["error"]["message"] == "two of three servers"
