import errno
import json
import random
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

import fsspec
import msgspec
import pyarrow.parquet as pq
import pytest
from builders.results.samples import sample_result, verdict, with_changes
from fsspec.implementations.memory import MemoryFileSystem

from evalrun_results.json_text import json_line
from evalrun_results.metrics.accumulator import MetricOptions
from evalrun_results.outputs import result_table
from evalrun_results.outputs.qa_logs import QaOptions
from evalrun_results.outputs.result_row import JudgedTest, ResultRow, encode_row, result_row
from evalrun_results.outputs.result_table import RESULT_SCHEMA, table_of_lines
from evalrun_results.outputs.writer import OutputPlan, send_directory, write_outputs
from evalrun_results.samples import SampleResult
from evalrun_runtime.exits import BadInputError

COST = {"gpu_seconds": 7200.0, "cpu_seconds": 1.5, "cpu_hour": None, "currency": "EUR"}
PLAN = OutputPlan({"versions": {"evalrun": "0.1.0"}, "seeds": [1]}, MetricOptions(), QaOptions(0.0, 2048))
FILES = {
    "summary.json", "metrics.json", "run_info.json", "results.jsonl", "results.parquet", "report.html",
    "qa_logs/qa_summary.json", "qa_logs/humaneval_qa.jsonl", "qa_logs/mbpp_reg_qa.jsonl",
}  # fmt: skip


def a_run() -> list[SampleResult]:
    statuses = (["success"], ["wrong_answer", "success"], ["timeout"], ["compile_error"])
    rows = [sample_result(p, 0, statuses[p % 4], judged_after=1.0 + p) for p in range(40)]
    return rows + [sample_result(p, 0, statuses[p % 3], dataset="mbpp_reg", judged_after=50.0 + p) for p in range(30)]


def files_in(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_outputs_directory_holds_the_documented_files(tmp_path: Path) -> None:
    summary = write_outputs(iter(a_run()), str(tmp_path / "run"), PLAN)
    files = files_in(tmp_path / "run")
    assert set(files) == FILES
    written = json.loads(files["summary.json"])
    assert list(written) == ["schema", "state", "warnings", "counts", "datasets"]
    assert (written["schema"], written["state"], written["counts"]["problems"]) == (1, "Succeeded", 70)
    dataset = written["datasets"]["humaneval"]
    assert dataset["coverage"] == 1.0
    assert set(dataset["metrics"]["accepted_at_1"]) == {"value", "low", "high", "method", "n"}
    assert dataset["metrics"]["accepted_at_1"]["value"] == 0.25
    assert json.loads(files["metrics.json"])["humaneval"]["accepted_at_1"] == 0.25
    assert json.loads(files["run_info.json"]) == PLAN.run_info
    assert summary.datasets["mbpp_reg"].counts["problems"] == 30
    assert len(files["qa_logs/mbpp_reg_qa.jsonl"].splitlines()) == 20


def test_anything_not_judged_makes_the_run_degraded(tmp_path: Path) -> None:
    rows = [*a_run(), sample_result(99, 0, None)]
    assert write_outputs(rows, str(tmp_path), PLAN).state == "Degraded"
    written = json.loads((tmp_path / "summary.json").read_text())
    assert (written["state"], written["counts"]["not_judged"]) == ("Degraded", 1)


@pytest.mark.parametrize(
    ("seconds", "price", "cost"),
    [
        (7200.0, 2.5, {**COST, "gpu_hour": 2.5, "money": 5.0}),
        (7200.0, None, {**COST, "gpu_hour": None, "money": None}),
        (0.0, 2.5, None),  # simple mode: nobody knows what the endpoints' GPUs did
        (None, 2.5, None),
    ],
)
def test_summary_and_report_show_the_cost_of_the_gpus(
    tmp_path: Path, seconds: float | None, price: float | None, cost: dict[str, object] | None
) -> None:
    options = MetricOptions(gpu_seconds=seconds, gpu_hour_price=price)
    rows = [sample_result(0, 0), sample_result(1, 0), sample_result(2, 0, ["timeout"])]
    write_outputs(rows, str(tmp_path), OutputPlan({}, options, QaOptions(0.0, 1), currency="EUR"))
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written.get("cost") == cost
    page = (tmp_path / "report.html").read_text()
    assert ("Money, EUR" in page) == (cost is not None and price is not None)
    assert ("GPU time</th>" in page) == (cost is not None)
    if cost and price:
        assert written["datasets"]["humaneval"]["metrics"]["money_per_solved"]["value"] == pytest.approx(2.5)
        assert "GPUs in all: 2.0 h, 5 EUR." in page


def test_the_summary_says_which_verdicts_change_under_which_comparator(tmp_path: Path) -> None:
    def row(problem: int, status: str, *others: str, repeat: int = 0) -> SampleResult:
        made = verdict([status])
        made.disagreeing_comparators.extend(others)
        return with_changes(sample_result(problem, 0, repeat=repeat), verdict=made)

    rows = [
        row(1, "success", "exact"),
        row(2, "success", "exact", "verl"),
        row(3, "wrong_answer", "tokens"),
        row(4, "wrong_answer", "verl"),
        row(5, "success"),
        row(5, "wrong_answer", "verl", repeat=1),  # a noise-floor repeat is no verdict of the run
        with_changes(sample_result(6, 0), dataset="agreed"),
    ]
    write_outputs(rows, str(tmp_path), PLAN)
    datasets = json.loads((tmp_path / "summary.json").read_text())["datasets"]
    found = datasets[rows[0].dataset]["comparators"]
    assert found["changed_answers"] == 4
    assert found["otherwise"] == {
        "exact": {"would_accept": 0, "would_reject": 2, "accepted": 1},
        "tokens": {"would_accept": 1, "would_reject": 0, "accepted": 4},
        "verl": {"would_accept": 1, "would_reject": 1, "accepted": 3},
    }
    assert [(each["accepted"], each["comparators"]) for each in found["examples"]] == [
        (True, ["exact"]), (True, ["exact", "verl"]), (False, ["tokens"]), (False, ["verl"]),
    ]  # fmt: skip
    assert datasets["agreed"]["comparators"] == {"changed_answers": 0, "otherwise": {}, "examples": []}


def test_both_result_files_hold_the_same_rows_in_the_streams_order(tmp_path: Path) -> None:
    rows = a_run()
    rows.append(sample_result(77, 3, None, repeat=1, output_tokens=None, gen_seconds=None))
    rows.append(with_changes(sample_result(78, 0, ["api_error", "wrong_answer"]), response='\x00 "é" \u2028 😀 \\n\n'))
    write_outputs(rows, str(tmp_path), PLAN)
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_bytes().split(b"\n")[:-1]]
    assert lines == [msgspec.to_builtins(result_row(row)) for row in rows]
    table = pq.read_table(tmp_path / "results.parquet")
    assert table.schema.equals(RESULT_SCHEMA)
    assert table.to_pylist() == lines


def test_tests_of_a_row_have_the_required_fields(tmp_path: Path) -> None:
    made = verdict(["success", "memory_limit", "compile_timeout"])
    made.tests[1].exit_code = -9
    made.tests[1].stderr.full_length = 5_000_000
    made.tests[2].ClearField("exit_code")
    write_outputs([with_changes(sample_result(), verdict=made)], str(tmp_path), PLAN)
    (row,) = pq.read_table(tmp_path / "results.parquet").to_pylist()
    assert (row["accepted"], row["final_status"], row["extraction"]) == (False, "syntax_error", "tagged_block")
    tests = row["tests"]
    assert [test["status"] for test in tests] == ["success", "memory_limit", "compile_timeout"]
    assert [test["verl_code"] for test in tests] == [True, -2, -4]
    assert [test["exit_code"] for test in tests] == [0, -9, None]
    assert tests[1]["stderr_length"] == 5_000_000
    assert set(tests[0]) >= {
        "case_index", "input", "expected_output", "status", "ran", "stdout", "stderr", "exit_code", "duration",
        "cpu_time", "compile_duration", "compile_stderr",
    }  # fmt: skip


def test_rows_and_columns_are_named_alike_in_the_same_order() -> None:
    assert list(ResultRow.__struct_fields__) == RESULT_SCHEMA.names
    assert list(JudgedTest.__struct_fields__) == [field.name for field in result_table.TEST_TYPE]


@pytest.mark.parametrize(
    "changes",
    [
        {"response": "".join(map(chr, range(0x3000))) + "\uffff\U0001f600"},
        {"response": "a lone \ud800 surrogate"},
        {"started_at": 1e15 / 3, "judged_at": 1e9 + 0.01, "gen_seconds": 1.5e-7},
        {"gen_seconds": float("inf"), "started_at": float("nan"), "judged_at": -0.0},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_row_is_written_as_json_is_everywhere_else(changes: dict[str, object]) -> None:
    row = result_row(with_changes(sample_result(), **changes))
    line = bytearray(b"the row before")
    encode_row(row, line)
    assert line == json_line(msgspec.to_builtins(row)) + b"\n"


def test_a_line_of_many_megabytes_is_read_whole() -> None:
    row = json.dumps({"dataset": "d", "response": "x" * 3_000_000}).encode() + b"\n"
    assert table_of_lines(row * 3).num_rows == 3


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_outputs(a_run(), str(tmp_path / name), PLAN)
    assert files_in(tmp_path / "one") == files_in(tmp_path / "two")


def test_the_order_of_verdicts_changes_rows_only(tmp_path: Path) -> None:
    rows = a_run()
    write_outputs(rows, str(tmp_path / "one"), PLAN)
    random.Random(3).shuffle(rows)
    write_outputs(rows, str(tmp_path / "two"), PLAN)
    one, two = files_in(tmp_path / "one"), files_in(tmp_path / "two")
    assert {name for name in FILES if one[name] != two[name]} == {"results.jsonl", "results.parquet"}


def test_json_files_hold_null_for_nan_and_infinity(tmp_path: Path) -> None:
    rows = [with_changes(sample_result(0, 0, ["timeout"]), gen_seconds=float("nan"))]
    write_outputs(rows, str(tmp_path), OutputPlan({"x": float("inf")}, MetricOptions(), QaOptions(0.0, 1)))
    for name, content in files_in(tmp_path).items():
        if not name.endswith("parquet"):
            assert b"NaN" not in content, name
            assert b"Infinity" not in content, name
    assert json.loads((tmp_path / "run_info.json").read_text()) == {"x": None}


def test_lone_surrogates_of_a_users_file_do_not_stop_the_run(tmp_path: Path) -> None:
    row = with_changes(sample_result(), response="a\ud800b", prompt="\udfff", ground_truth={"inputs": ["\ud800"]})
    write_outputs([row], str(tmp_path), PLAN)
    assert pq.read_table(tmp_path / "results.parquet")["response"].to_pylist() == ["a\ufffdb"]
    assert "a\ufffdb" in (tmp_path / "qa_logs" / "humaneval_qa.jsonl").read_text()


def test_a_datasets_name_cannot_leave_the_directory(tmp_path: Path) -> None:
    rows = [sample_result(dataset=name) for name in ("../../up", "a/b", "a_b")]
    write_outputs(rows, str(tmp_path / "run"), PLAN)
    assert {path.name for path in (tmp_path / "run" / "qa_logs").iterdir()} == {
        "..%2F..%2Fup_qa.jsonl", "a%2Fb_qa.jsonl", "a_b_qa.jsonl", "qa_summary.json",
    }  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def broken_after(rows: Iterable[SampleResult]) -> Iterator[SampleResult]:
    yield from rows
    raise RuntimeError("the ledger went away")


def test_a_failure_leaves_no_partial_file_and_no_old_summary(tmp_path: Path) -> None:
    write_outputs(a_run(), str(tmp_path), PLAN)
    before = files_in(tmp_path)
    with pytest.raises(RuntimeError, match="went away"):
        write_outputs(broken_after(a_run()[:9]), str(tmp_path), PLAN)
    assert files_in(tmp_path) == {name: content for name, content in before.items() if name != "summary.json"}


@pytest.fixture
def small_files() -> Iterator[int]:
    """Let no file of this process grow past 64 KiB: the nearest thing to a full disk that needs no privilege."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, limits[1]))
    yield 64 << 10
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("count", [100, 40_000], ids=["at the end", "between row groups"])
def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path, small_files: int, count: int) -> None:
    one = with_changes(sample_result(), response="x" * 2_000)
    rows = (with_changes(one, problem_id=f"P/{p}") for p in range(count))
    with pytest.raises(OSError, match=r"results\.jsonl") as caught:
        write_outputs(rows, str(tmp_path), PLAN)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(tmp_path / "results.jsonl"))
    assert files_in(tmp_path) == {}
    assert small_files == 64 << 10


def test_directory_that_cannot_be_made_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write_outputs(a_run(), str(tmp_path / "file" / "run"), PLAN)


def test_a_noise_floor_answer_that_was_not_judged_degrades_the_run_but_no_figure(tmp_path: Path) -> None:
    rows = [sample_result(0, 0), sample_result(0, 0, None, repeat=1)]
    summary = write_outputs(rows, str(tmp_path), OutputPlan({}, MetricOptions(), QaOptions(0.0, 1)))
    assert summary.state == "Degraded"
    metrics = summary.datasets["humaneval"]
    assert (metrics.counts["not_judged"], metrics.counts["not_judged_repeats"], metrics.coverage) == (0, 1, 1.0)
    assert "1 answers of noise-floor repeats could not be judged" in (tmp_path / "report.html").read_text()


def test_a_url_gets_the_same_files(tmp_path: Path) -> None:
    write_outputs(a_run(), "memory://bucket/run_1", PLAN, staging=tmp_path)
    write_outputs(a_run(), str(tmp_path / "local"), PLAN)
    memory = fsspec.filesystem("memory")
    sent = {path.removeprefix("/bucket/run_1/"): memory.cat_file(path) for path in memory.find("/bucket/run_1")}
    assert sent == files_in(tmp_path / "local")
    assert [path.name for path in tmp_path.iterdir()] == ["local"]
    memory.rm("/bucket", recursive=True)


class FailingStore(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Object storage that refuses one file."""

    cachable = False
    store: ClassVar[dict[str, object]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def put_file(self, lpath: str, rpath: str, **_options: object) -> None:
        if rpath.endswith("results.parquet"):
            raise OSError("quota exceeded")
        super().put_file(lpath, rpath)


def test_sending_that_fails_names_the_file_and_leaves_no_summary(tmp_path: Path) -> None:
    store = FailingStore()
    store.pipe_file("/bucket/run/summary.json", b"of an earlier attempt")
    write_outputs(a_run(), str(tmp_path), PLAN)
    with pytest.raises(OSError, match="quota exceeded") as caught:
        send_directory(tmp_path, store, "/bucket/run")
    assert caught.value.filename == "/bucket/run/results.parquet"
    assert "/bucket/run/results.jsonl" in store.find("/bucket/run")
    assert "/bucket/run/summary.json" not in store.find("/bucket/run")


@pytest.mark.parametrize("url", ["nope://bucket/x", "s3x://bucket"])
def test_unknown_url_scheme_of_the_output_is_bad_input(url: str) -> None:
    with pytest.raises(BadInputError, match=f"output {url}: Protocol not known"):
        write_outputs(a_run(), url, PLAN)
