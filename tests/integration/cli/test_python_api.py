"""The commands as functions: in a script, under a running event loop, and as the tutorial shows them."""

import asyncio
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from builders.command_line import PROJECT, processes_with
from builders.generator.model_server import MODEL, completion, model_server

from evalrun import BadInputError, RunFailedError, compare, judge, run
from evalrun_cli.local.run_session import StopSwitch
from evalrun_runtime.exits import ExitCode

pytestmark = pytest.mark.timeout(240)

TESTS = {"inputs": ["1\n"], "outputs": ["1\n"]}
RIGHT = "print(input())"


def files(directory: Path) -> tuple[Path, Path]:
    """Write problems, and an answer to each."""
    problems = [{"dataset": "ds", "problem_id": name, "prompt": name, "ground_truth": TESTS} for name in ("a", "b")]
    answers = [{"problem_id": name, "response": RIGHT} for name in ("a", "b")]
    for name, rows in (("problems", problems), ("answers", answers)):
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return directory / "problems.jsonl", directory / "answers.jsonl"


async def test_judge_inside_a_running_event_loop_leaves_no_thread_or_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems, answers = files(tmp_path)
    monkeypatch.setenv("STARTED_BY", str(tmp_path / "out"))  # what is left of the parts is found by it
    assert asyncio.get_running_loop().is_running()
    result = judge(problems, answers, output=tmp_path / "out", model="org/model", progress=False)
    assert (result.state, result.exit_code, result.datasets) == ("Succeeded", ExitCode.SUCCEEDED, ["ds"])
    assert (result.metric("ds"), result.warnings) == (1.0, [])
    assert [(row["problem_id"], row["accepted"], row["model"]) for row in result.rows()] == [
        ("a", True, "org/model"),
        ("b", True, "org/model"),
    ]
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("evalrun")] == []
    assert processes_with(str(tmp_path / "out")) == []


def test_a_model_is_run_and_compared_without_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problems, answers = files(tmp_path)
    with model_server(completion(f"```python\n{RIGHT}\n```")) as server:
        result = run(endpoint=server.url, model=MODEL, dataset=problems, output=tmp_path / "ran")
    assert result.metric("ds") == 1.0
    assert "2/2 generated" in capsys.readouterr().out
    judge(problems, answers, output=tmp_path / "judged", progress=False)
    assert capsys.readouterr().out == ""
    comparison = compare(tmp_path / "ran", tmp_path / "judged")
    assert [(each.dataset, each.both_solved) for each in comparison.datasets] == [("ds", 2)]


def test_user_error_is_raised_with_the_commands_message(tmp_path: Path) -> None:
    problems, _ = files(tmp_path)
    with pytest.raises(BadInputError, match=r"none\.jsonl: no such file"):
        judge(problems, tmp_path / "none.jsonl", output=tmp_path / "out")
    with pytest.raises(BadInputError, match="--model is missing"):
        run(endpoint="http://127.0.0.1:9", dataset=problems)
    with pytest.raises(BadInputError, match="says model, dataset"):
        run("run.yaml", endpoint="http://127.0.0.1:9", model="m")
    with pytest.raises(BadInputError, match="no finished run there"):
        compare(tmp_path, tmp_path)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("early", [True, False])
def test_stop_switch_works_from_another_thread_and_before_the_run_begins(early: bool) -> None:
    switch, stopped = StopSwitch(), threading.Event()
    if early:
        switch.press()
    switch.connect(stopped.set)
    if not early:
        thread = threading.Thread(target=switch.press)
        thread.start()
        thread.join()
    assert stopped.is_set()


def test_a_failed_run_names_its_directory_and_why() -> None:
    error = RunFailedError(Path("out"), "no endpoint has answered for 120 s")
    assert str(error) == "out: no endpoint has answered for 120 s"


def test_programs_of_the_tutorial_run_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (PROJECT / "docs" / "tutorial" / "python.md").read_text(), re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/tutorial/python.md", "exec"), space)
    assert (space["first"].metric("sums"), space["second"].metric("sums")) == (0.5, 1.0)
    assert [flip.problem_id for flip in space["comparison"].datasets[0].gained] == ["b"]
    assert "sums: +50.0 pt" in repr(space["comparison"])
    assert "+50.0 pt" in space["comparison"]._repr_html_()
    assert [each.dataset for each in space["gates"].results] == ["sums"]
    several = compare(space["first"], space["second"], pool_seeds=True)
    assert "A: judge" in repr(several)
    assert "<td>pass@1</td>" in several._repr_html_()


def test_judging_rows_can_be_resumed_with_the_same_rows(tmp_path: Path) -> None:
    problems = [{"dataset": "ds", "problem_id": "a", "prompt": "a", "ground_truth": TESTS}]
    answers = [{"problem_id": "a", "response": RIGHT}]
    first = judge(problems, answers, output=tmp_path / "out", progress=False)
    again = judge(problems, answers, output=tmp_path / "out", progress=False, resume=True)
    assert (first.metric("ds"), again.metric("ds"), len(list((tmp_path / "out.rows").iterdir()))) == (1.0, 1.0, 2)
    with pytest.raises(BadInputError, match="resume: names no directory"):
        judge(problems, answers, resume=True)
