"""The results of a run in Python."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import evalrun
from evalrun import BadInputError, Estimate, ExitCode, GateDecision, GateDecisions, GateResult, RunResult
from evalrun_results.outputs.result_table import table_of_lines

FIGURES = {"accepted_at_1": {"value": 0.625, "low": 0.5, "high": 0.75}, "pass_ratio_mean": {"value": None}}
SUMMARY: dict[str, Any] = {
    "schema": 1, "state": "Degraded", "datasets": {"<mine>": {"metrics": FIGURES, "counts": {"accepted": 5}}},
    "warnings": ["1 < 2"],
}  # fmt: skip
RESULT = RunResult(Path("out"), SUMMARY, ExitCode.DEGRADED)
TEST = {
    "case_index": 0,
    "status": "wrong_answer",
    "input": "1",
    "expected_output": "2",
    "stdout": "3",
    "stderr": "",
    "reason": "",
}


def row(name: str, *, accepted: bool | None, repeat: int = 0) -> dict[str, Any]:
    return {
        "dataset": "ds", "problem_id": name, "sample": 0, "turn": 0, "repeat": repeat, "judged": accepted is not None,
        "accepted": accepted, "pass_ratio": None if accepted is None else float(accepted), "score": None,
        "final_status": "success" if accepted else "wrong_answer", "response": "r", "code": "c", "tests": [TEST],
        "not_judged_reason": "" if accepted is not None else "out",
    }  # fmt: skip


@pytest.fixture
def stored(tmp_path: Path) -> RunResult:
    """A run of four rows on disk, as `load` finds it."""
    from pyarrow import parquet

    rows = [
        row("a", accepted=True),
        row("b", accepted=False),
        row("c", accepted=None),
        row("b", accepted=False, repeat=1),
    ]
    lines = "".join(json.dumps(each) + "\n" for each in rows).encode()
    (tmp_path / "results.jsonl").write_bytes(lines)
    parquet.write_table(table_of_lines(lines), tmp_path / "results.parquet")
    (tmp_path / "summary.json").write_text(json.dumps(SUMMARY))
    (tmp_path / "run_info.json").write_text("{}")
    return evalrun.load(tmp_path)


@pytest.mark.parametrize(
    ("dataset", "metric", "says"),
    [
        ("<mine>", "nope", "out: <mine> has no metric 'nope': it has accepted_at_1, pass_ratio_mean"),
        ("yours", "accepted_at_1", "out: no dataset 'yours': it has <mine>"),
    ],
)
def test_metric_absent_lists_those_present(dataset: str, metric: str, says: str) -> None:
    with pytest.raises(BadInputError, match=f"^{says}$"):
        RESULT.metric(dataset, metric)


def test_estimate_holds_value_and_interval_or_is_none() -> None:
    assert RESULT.estimate("<mine>") == Estimate(0.625, 0.5, 0.75)
    assert RESULT.estimate("<mine>", "pass_ratio_mean") is None
    assert RESULT.metric("<mine>", "pass_ratio_mean") is None


def test_repr_is_one_line() -> None:
    assert repr(RESULT) == "<RunResult Degraded <mine>: 62.5 % in out>"


def test_html_shows_interval_and_escapes_names() -> None:
    shown = RESULT._repr_html_()
    assert "<td>50.0 % to 75.0 %</td>" in shown
    assert "&lt;mine&gt;" in shown
    assert "1 &lt; 2" in shown
    assert "<mine>" not in shown


def test_load_gives_exit_code_of_state_and_place(stored: RunResult, tmp_path: Path) -> None:
    assert (stored.exit_code, stored.directory, stored.state) == (ExitCode.DEGRADED, tmp_path, "Degraded")
    with pytest.raises(BadInputError, match="no finished run there"):
        evalrun.load(tmp_path / "none")
    with pytest.raises(BadInputError, match="is no local directory"):
        RunResult("s3://bucket/run", SUMMARY, ExitCode.SUCCEEDED).directory  # noqa: B018


def test_failed_excludes_not_judged_answers_and_noise_floor_repeats(stored: RunResult) -> None:
    assert [verdict.problem_id for verdict in stored.failed()] == ["b"]
    assert stored.failed("other") == []
    assert [(verdict.problem_id, verdict.not_judged_reason) for verdict in stored.not_judged()] == [("c", "out")]
    (failed,) = stored.failed()
    assert repr(failed) == "<Verdict ds b wrong_answer, 0 of 1 tests>"
    assert (failed.tests[0].passed, failed.tests[0].stdout) == (False, "3")


def test_frames_hold_every_row_with_its_tests(stored: RunResult) -> None:
    assert stored.to_arrow().read_all().column("problem_id").to_pylist() == ["a", "b", "c", "b"]
    assert pa.table(stored).num_rows == 4  # by the Arrow stream protocol
    frame = stored.to_pandas()
    assert list(frame["accepted"][:2]) == [True, False]
    assert frame["tests"][0][0]["stdout"] == "3"


def test_duckdb_reads_a_run_by_its_name(stored: RunResult) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: make unit installs it")
    assert duckdb.sql("SELECT problem_id FROM stored WHERE accepted ORDER BY 1").fetchall() == [("a",)]


def test_polars_reads_a_run(stored: RunResult) -> None:
    pytest.importorskip("polars", reason="polars is not installed: make unit installs it")
    assert stored.to_polars()["problem_id"].to_list() == ["a", "b", "c", "b"]


def test_gate_decisions_pass_only_if_every_gate_passed() -> None:
    def result(decision: GateDecision) -> GateResult:
        return GateResult(decision, "", "m < n", "ds", "accepted_at_1", "base", 0.0, 0.95)

    both = GateDecisions((result(GateDecision.PASS), result(GateDecision.INCONCLUSIVE)))
    assert (both.passed, both.exit_code) == (False, ExitCode.GATE_INCONCLUSIVE)
    assert GateDecisions((result(GateDecision.PASS),)).passed
    assert repr(both) == "<GateDecisions ds accepted_at_1: PASS, ds accepted_at_1: INCONCLUSIVE>"
    assert "m &lt; n" in both._repr_html_()


def test_public_names_are_those_documented() -> None:
    assert all(getattr(evalrun, name).__doc__ for name in evalrun.__all__ if name != "__version__")
    public = {name for name in vars(evalrun) if not name.startswith("_")}
    assert public == set(evalrun.__all__) - {"__version__"}
