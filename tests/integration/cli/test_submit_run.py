"""`judgeMode: Submit` as a user runs it: through a SandboxFusion server, which has the tests, and without one."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from builders.command_line import Command, evalrun, evalrun_started, results, summary
from builders.fusion.clients import STDIO_ROW, sandbox

from evalrun_runtime.ready_line import parse_ready_line

PROBLEM = {"dataset": "contests", "sandbox_dataset": "code_contests", "sandbox_id": "7"}  # the tests are there
ANSWERS = {
    "right": "Here:\n```python\nprint(sum(map(int, input().split())))\n```",
    "wrong": "```python\nprint(0)\n```",
    "prose": "I cannot do that.",
}
PROBLEMS = [{**PROBLEM, "problem_id": name, "prompt": f"Add two numbers ({name})."} for name in ANSWERS]
STATUSES = {"right": "success", "wrong": "wrong_answer", "prose": "empty_output"}
MANIFEST = """
apiVersion: evalrun.dev/v1alpha1
kind: EvalRun
metadata: {name: submits}
spec:
  model: {path: some/model}
  datasets: [{name: contests, source: problems.jsonl, judgeMode: Submit}]
  endpoints: [{url: "ENDPOINT", model: some/model}]
"""


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_manifest(directory: Path, endpoint: str = "http://127.0.0.1:1/v1") -> Path:
    write_lines(directory / "problems.jsonl", PROBLEMS)
    (directory / "run.yaml").write_text(MANIFEST.replace("ENDPOINT", endpoint))
    return directory / "run.yaml"


@contextmanager
def recorded(directory: Path) -> Iterator[str]:
    write_lines(directory / "answers.jsonl", [{"problem_id": name, "response": text} for name, text in ANSWERS.items()])
    files = ("--problems", directory / "problems.jsonl", "--responses", directory / "answers.jsonl")
    with evalrun_started("serve", "recorded", *files, "--model", "some/model") as process:
        assert process.stdout is not None
        address = next(filter(None, map(parse_ready_line, process.stdout)))
        yield address


def test_a_run_is_judged_by_the_servers_own_tests(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    write_lines(rows / "code_contests.jsonl", [STDIO_ROW])
    output = tmp_path / "out"
    manifest = write_manifest(tmp_path)
    with sandbox("--fusion-datasets", rows) as server, recorded(tmp_path) as endpoint:
        flags = ("--endpoint", endpoint, "--sandbox-fusion", server)
        done = evalrun("run", manifest, "--local", "--output", output, *flags)
        assert done.returncode == 0, done.stdout + done.stderr
    found = {row["problem_id"]: row for row in results(output)}
    assert {name: row["final_status"] for name, row in found.items()} == STATUSES
    assert all(row["forgeable"] and not row["cached"] for row in found.values())
    assert [len(found[name]["tests"]) for name in ("right", "wrong")] == [len(STDIO_ROW["test"])] * 2
    assert [found[name]["pass_ratio"] for name in ("right", "wrong")] == [1.0, 0.2]
    assert summary(output)["state"] == "Succeeded"
    assert {path.stem for path in (output / "logs").iterdir()} == {"judge", "aggregator", "generator"}

    again = evalrun("rejudge", output, "--output", tmp_path / "again")
    assert (again.returncode, (tmp_path / "again").exists()) == (2, False)
    assert "spec.datasets[0].judgeMode: Submit needs a SandboxFusion server" in again.stderr


def test_answers_made_elsewhere_are_judged_by_the_servers_own_tests(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    write_lines(rows / "code_contests.jsonl", [STDIO_ROW])
    problems = write_lines(tmp_path / "problems.jsonl", PROBLEMS)
    answers = [{"problem_id": name, "response": text} for name, text in ANSWERS.items()]
    responses = write_lines(tmp_path / "answers.jsonl", answers)
    files = ("--problems", problems, "--responses", responses, "--judge-mode", "Submit")
    with sandbox("--fusion-datasets", rows) as server:
        done = evalrun("judge", *files, "--sandbox-fusion", server, "--output", tmp_path / "out")
        assert done.returncode == 0, done.stdout + done.stderr
    found = {row["problem_id"]: row for row in results(tmp_path / "out")}
    assert {name: row["final_status"] for name, row in found.items()} == STATUSES
    assert all(row["forgeable"] for row in found.values())
    assert summary(tmp_path / "out")["state"] == "Succeeded"


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ((), "--judge-mode Submit: needs a SandboxFusion server, which has the tests: add --sandbox-fusion URL"),
        (("--sandbox-fusion", "http://h:1", "--comparator", "exact"), "--comparator: with --judge-mode Submit"),
    ],
)
def test_options_that_do_not_fit_the_servers_tests_are_refused(
    evalrun_here: Command, flags: tuple[str, ...], complaint: str, tmp_path: Path
) -> None:
    files = ("--problems", "none.jsonl", "--responses", "none.jsonl", "--output", tmp_path / "out")
    done = evalrun_here("judge", *files, "--judge-mode", "Submit", *flags)
    assert (done.returncode, (tmp_path / "out").exists()) == (2, False)
    assert complaint in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_sandbox_fusion_flag_for_a_cluster_run_is_refused(evalrun_here: Command, tmp_path: Path) -> None:
    done = evalrun_here("run", write_manifest(tmp_path), "--sandbox-fusion", "http://h:1")
    assert done.returncode == 2
    assert "--sandbox-fusion: only for runs on this machine" in done.stderr
