"""More than two runs, from Python and in every format, with phases and plots; runs that were stopped early."""

import json
import re
from pathlib import Path

import pytest
import yaml
from builders.results.stored_runs import verdicts_of, write_run

from evalrun import SeveralRuns, compare
from evalrun_cli.comparisons.several_views import compare_several_runs, phase_places
from evalrun_cli.comparisons.views import gate
from evalrun_results.metrics.accumulator import MetricOptions
from evalrun_results.outputs.qa_logs import QaOptions
from evalrun_results.outputs.stopped_early import StoppedDataset, StoppedEarly
from evalrun_results.outputs.writer import OutputPlan, write_outputs
from evalrun_results.sequential.order import order_problems
from evalrun_runtime.exits import BadInputError, ExitCode


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Three runs over 40 problems, of which 10, 20 and 30 are solved."""
    return [
        write_run(tmp_path / name, verdicts_of([place < solved for place in range(40)]))
        for name, solved in (("base", 10), ("sft", 20), ("dpo", 30))
    ]


def test_three_runs_from_python_are_compared_with_the_first(runs: list[Path]) -> None:
    found = compare(*runs)
    assert isinstance(found, SeveralRuns)
    assert [(each.first, each.second) for each in found.datasets[0].contrasts] == [("A", "B"), ("A", "C")]
    pairs = compare(*runs, all_pairs=True)
    assert isinstance(pairs, SeveralRuns)
    assert len(pairs.datasets[0].contrasts) == 3


def rows_below(page: str, heading: str) -> list[list[str]]:
    """Return the texts of the table's cells below a heading of a page."""
    found = page[page.index(f"<h2>{heading}</h2>") :]
    found = found[: found.index("</table>")]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in found.split("<tr>")[1:]]
    return [[re.sub(r"<[^>]+>", "", cell) for cell in row] for row in rows]


@pytest.mark.parametrize("view", ["text", "markdown", "json", "html"])
def test_phases_are_in_every_format(runs: list[Path], tmp_path: Path, view: str) -> None:
    written = tmp_path / "compared"
    base, sft, dpo = map(str, runs)
    compare_several_runs(
        [base, f"sft={sft}", f"dpo={dpo}"], all_pairs=False, pool_seeds=False, phases=True, view=view, output=written
    )
    content = written.read_text()
    if view == "json":
        rows = json.loads(content)["phases"]
        assert [(row["phase"], row["metric"], row["reached"]) for row in rows] == [
            ("1 SFT", "exec_success_rate", "open"),
            ("1 SFT", "syntax_error_rate", "open"),
            ("2 DPO", "pass_ratio_mean", "yes"),
            ("2 DPO", "zero_reward_rate", "yes"),
        ]
        return
    assert "2 DPO" in content
    assert "pass ratio" in content
    if view == "html":
        assert "Differences of pass@1 on humaneval, with intervals" in content
        assert "B - A: +25.0 points" in content
        rows = rows_below(content, "Phases side by side")
        assert rows[0] == ["Dataset", "Headline", "0 baseline (A)", "1 SFT (B)", "2 DPO (C)"]
        assert rows[1] == [
            "", "goal", "where the model stands", "fewer low-level errors", "preference alignment as a cold start",
        ]  # fmt: skip
        (ratio,) = [row for row in rows if row[1] == "pass ratio"]
        assert [cell.partition(",")[0] for cell in ratio[2:]] == ["25.0 %", "50.0 %", "75.0 %"]
        assert [cell.partition(": ")[2] for cell in ratio[2:]] == ["", "", "reached"]
        assert {row[3].partition(": ")[2] for row in rows[2:4]} == {"open"}


def test_compare_phases_finds_the_runs_of_a_directory_by_their_lineage(tmp_path: Path) -> None:
    for name, phase in (("a-grpo", "grpo"), ("b-other", None), ("c-base", "baseline")):
        spec = {"lineage": {"phase": phase}} if phase else {}
        write_run(tmp_path / name, verdicts_of([True] * 3), spec=spec)
    places, named = phase_places([str(tmp_path)])
    assert (places, named) == ([str(tmp_path / "c-base"), str(tmp_path / "a-grpo")], {})


def test_compare_phases_a_run_without_its_phase_is_bad_input(tmp_path: Path) -> None:
    places = [str(write_run(tmp_path / str(number), verdicts_of([True] * 3))) for number in range(2)]
    with pytest.raises(BadInputError, match=r"--phases: .* says no phase: write spec\.lineage\.phase"):
        compare_several_runs(places, all_pairs=False, pool_seeds=False, phases=True, view="text", output=None)


PROBLEMS = 60


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A run of 60 problems that its gate stopped after 20, all of them lost."""
    rows = verdicts_of([False] * PROBLEMS)
    first = set(order_problems(0, "humaneval", [row.problem_id for row in rows])[:20])
    info = {"spec": {"protocol": {"seed": 0}}, "datasets": {"humaneval": {"problems": PROBLEMS}}}
    said = StoppedEarly(0, {"humaneval": StoppedDataset(20, PROBLEMS, 40)})
    plan = OutputPlan(info, MetricOptions(), QaOptions(0.0, 2048), stopped=said)
    write_outputs((row for row in rows if row.problem_id in first), str(tmp_path / "stopped"), plan)
    return tmp_path / "stopped"


def policy(directory: Path, **fields: object) -> Path:
    file = directory / "policy.yaml"
    file.write_text(
        yaml.safe_dump([{"dataset": "humaneval", "baseline": "main", "allowTestRole": ["humaneval"], **fields}])
    )
    return file


def test_a_stopped_run_is_decided_again_from_its_outputs(stopped: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "main", verdicts_of([True] * PROBLEMS))
    written = tmp_path / "gate.json"
    file = policy(tmp_path, maxRegression="0.02", sequential=True)
    assert gate(str(stopped), file, view="json", output=written) is ExitCode.GATE_FAILED
    (found,) = json.loads(written.read_text())
    assert (found["of_problems"], found["decision"]) == (PROBLEMS, "FAIL")


def test_gate_of_fixed_size_refuses_a_stopped_run(stopped: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "main", verdicts_of([True] * PROBLEMS))
    with pytest.raises(BadInputError, match="an interval for a run of fixed size is not valid for it"):
        gate(str(stopped), policy(tmp_path), view="text", output=None)


def test_a_stopped_run_is_no_baseline(stopped: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "new", verdicts_of([True] * PROBLEMS))
    with pytest.raises(BadInputError, match="was stopped early by its own gate, so its problems are a biased sample"):
        gate(str(run), policy(tmp_path, baseline=str(stopped)), view="text", output=None)


def test_a_comparison_warns_of_a_stopped_run(stopped: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "new", verdicts_of([True] * PROBLEMS))
    assert any("was stopped early by its gates" in line for line in compare(run, stopped).warnings)


def test_stopped_run_has_anytime_valid_intervals_or_none(stopped: Path) -> None:
    metrics = json.loads((stopped / "summary.json").read_text())["datasets"]["humaneval"]["metrics"]
    assert metrics["accepted_at_1"]["method"] == "betting"
    assert metrics["accepted_at_1"]["low"] == 0.0
    assert 0.0 < metrics["accepted_at_1"]["high"] < 0.3
    assert metrics["avg_total_gen_tokens"]["method"] == "none"
    assert metrics["avg_total_gen_tokens"]["no_interval_because"].startswith("the run was stopped by its gates")
