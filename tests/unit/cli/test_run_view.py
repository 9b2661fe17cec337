"""What the commands say of an EvalRun of a cluster, and with which exit code they end."""

import io
from datetime import timedelta
from typing import Any

import pytest
from builders.operator.evalruns import evalrun_manifest
from builders.operator.world import START, World, evalrun, generating
from rich.console import Console

from evalrun_api.v1alpha1 import EvalRun
from evalrun_cli.cluster.run_display import PlainRunDisplay
from evalrun_cli.cluster.run_view import exit_code, is_complete, progress_line, status_tables
from evalrun_operator.ledger_status import GateState
from evalrun_runtime.exits import ExitCode

GATE = {"spec.gates": [{"baseline": "s3://runs/main", "dataset": "humaneval"}]}


def ended(gate: GateState | None = None, *, not_judged: int = 0) -> EvalRun:
    world = generating(changes=None if gate is None else GATE)
    world.gate = gate or GateState.PENDING
    world.generate_all().judge_all(not_judged=not_judged)
    return world.settle().run


@pytest.mark.parametrize(
    ("run", "code"),
    [
        pytest.param(lambda: ended(), ExitCode.SUCCEEDED, id="succeeded"),
        pytest.param(lambda: ended(not_judged=3), ExitCode.DEGRADED, id="degraded"),
        pytest.param(lambda: ended(not_judged=164), ExitCode.FAILED, id="not one judged"),
        pytest.param(lambda: ended(GateState.PASSED), ExitCode.SUCCEEDED, id="gate passed"),
        pytest.param(lambda: ended(GateState.FAILED), ExitCode.GATE_FAILED, id="gate failed"),
        pytest.param(lambda: ended(GateState.FAILED, not_judged=3), ExitCode.GATE_FAILED, id="failed, degraded"),
        pytest.param(lambda: ended(GateState.INCONCLUSIVE), ExitCode.GATE_INCONCLUSIVE, id="gate open"),
        pytest.param(lambda: ended(GateState.NO_BASELINE), ExitCode.GATE_INCONCLUSIVE, id="no baseline"),
        pytest.param(lambda: ended(GateState.INCONCLUSIVE, not_judged=3), ExitCode.DEGRADED, id="open, degraded"),
    ],
)
def test_the_exit_code_follows_from_the_conditions(run: Any, code: ExitCode) -> None:
    assert is_complete(run())
    assert exit_code(run()) == code


def test_a_spec_that_the_operator_refuses_is_bad_input() -> None:
    world = World(run=evalrun({"spec.judge.gateway.minReplicas": 0}, rollout=True)).settle()
    assert exit_code(world.run) == ExitCode.BAD_INPUT


def test_a_run_past_its_deadline_has_failed() -> None:
    world = generating(changes={"spec.activeDeadlineSeconds": 60}).tick(61).settle()
    assert exit_code(world.run) == ExitCode.FAILED


def test_progress_line_shows_phase_counts_and_the_reason_for_waiting() -> None:
    world = generating()
    world.generated, world.judged = 50, 20
    world.settle()
    line = progress_line(world.run, START + timedelta(seconds=90))
    assert line == "[   90.0 s] Generating | humaneval: 50/164 generated, 20 judged | Attempt 1 runs."
    waiting = World().settle()
    assert "aggregator, judge, sandbox not ready yet" in progress_line(waiting.run, START)


def test_progress_line_of_a_run_without_an_operator_names_the_cause() -> None:
    run = EvalRun.from_wire(evalrun_manifest())
    assert "No operator has taken it up yet" in progress_line(run, START)
    assert not is_complete(run)


def shown(run: EvalRun) -> str:
    console = Console(file=io.StringIO(), width=110)
    for part in status_tables(run, START + timedelta(hours=1, seconds=5)):
        console.print(part)
    text = console.file
    return text.getvalue() if isinstance(text, io.StringIO) else ""


def test_the_tables_hold_conditions_datasets_and_places() -> None:
    text = shown(ended(GateState.FAILED))
    assert "EvalRun evals/run: Succeeded" in text
    assert "GatePassed" in text
    assert "Regression" in text
    assert "1h5s" in text
    assert "0.4200 to 0.5800" in text
    assert "outputs: s3://outputs/run" in text


def test_run_stopped_early_by_its_gates_shows_the_answers_not_needed() -> None:
    run = ended(GateState.PASSED)
    said = "humaneval: 9 of 20 answers were not needed"
    assert run.status is not None
    stopped = run.model_copy(update={"status": run.status.model_copy(update={"stopped_early": said})})
    assert f"stopped early by its gates: {said}" in shown(stopped)
    assert "stopped early" not in shown(run)


def test_plain_lines_appear_at_phase_changes_and_otherwise_rarely() -> None:
    console = Console(file=io.StringIO(), width=200)
    display = PlainRunDisplay(console)
    world = generating()
    display.update(world.run, START)
    for generated in range(1, 9):
        world.generated = generated
        display.update(world.settle().run, START + timedelta(seconds=generated))
    world.generate_all().judge_all().settle()
    display.update(world.run, START + timedelta(seconds=9))
    text = console.file
    lines = text.getvalue().splitlines() if isinstance(text, io.StringIO) else []
    assert [line.split("|")[0].split("]")[1].strip() for line in lines] == ["Generating", "Generating", "Succeeded"]
    assert "5/164 generated" in lines[1]
