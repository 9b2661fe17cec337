from pathlib import Path

import pytest
from builders.results.stored_runs import a_gate, verdicts_of, write_run

from evalrun_cli.comparisons.gate_policy import read_policy
from evalrun_cli.run_gate import apply_gate, check_baseline, gate_line
from evalrun_runtime.exits import BadInputError, ExitCode

OK, DEGRADED = ExitCode.SUCCEEDED, ExitCode.DEGRADED


@pytest.mark.parametrize(
    ("code", "decision", "ends"),
    [
        (OK, None, OK),
        (DEGRADED, None, DEGRADED),
        (OK, "PASS", OK),
        (DEGRADED, "PASS", DEGRADED),
        (OK, "FAIL", ExitCode.GATE_FAILED),
        (DEGRADED, "FAIL", ExitCode.GATE_FAILED),
        (OK, "INCONCLUSIVE", ExitCode.GATE_INCONCLUSIVE),
        (DEGRADED, "INCONCLUSIVE", DEGRADED),
    ],
)
def test_exit_code_reflects_the_worst_result(code: ExitCode, decision: str | None, ends: ExitCode) -> None:
    summary = {} if decision is None else {"gate": {"decision": decision, "message": "why"}}
    assert apply_gate(code, summary) == ends
    assert gate_line(summary) == (None if decision is None else f"Gate {decision}: why")


def test_a_baseline_is_checked_before_anything_is_generated(tmp_path: Path) -> None:
    write_run(tmp_path / "main", verdicts_of([True]))
    file = tmp_path / "run.yaml"
    check_baseline(a_gate(baseline="main"), file)
    with pytest.raises(BadInputError, match=r"run\.yaml: spec\.gates: main has no results of mbpp_reg"):
        check_baseline(a_gate(baseline="main", dataset="mbpp_reg"), file)
    with pytest.raises(BadInputError, match=r"spec\.gates: baseline nightly: no such directory"):
        check_baseline(a_gate(baseline="nightly"), file)


def test_policy_example_of_the_page_is_read(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "comparing.md").read_text(encoding="utf-8")
    (tmp_path / "policy.yaml").write_text(page.split("```yaml\n")[1].split("```")[0])
    gates = read_policy(tmp_path / "policy.yaml")
    assert [(gate.dataset, gate.metric, gate.max_regression_value) for gate in gates] == [
        ("mbpp_reg", "accepted_at_1", 0.06),
        ("mbpp_reg", "pass_ratio_mean", 0.05),
    ]
