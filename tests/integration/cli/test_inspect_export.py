"""`evalrun export inspect`: judged answers as logs of Inspect, read back by its real package and by our own reader.

`EVALRUN_TEST_INSPECT` names an interpreter with the extra `inspect`.
"""

import json
import os
import shutil
import subprocess
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.command_line import PROJECT, Command, evalrun, judge_rows, results
from builders.playback import playback
from builders.recorded_turns import ANSWERS, BY_HAND, HIDDEN, write_recorded_turns, write_turns_run

from evalrun_aggregator.ledger.place import LedgerLock

PYTHON = os.environ.get("EVALRUN_TEST_INSPECT")
READER = PROJECT / "tests" / "builders" / "inspect_log_reader.py"
RECORDED = (
    Path(os.environ.get("EVALRUN_TEST_DATA", PROJECT.parent / "shared" / "data"))
    / "completions" / "humaneval_ollama-qwen2.5-coder_7b.jsonl.gz"
)  # fmt: skip
RIGHT = "```python\nprint(int(input()) * 2)\n```"
WRONG = "```python\nprint(0)\n```"
HOSTILE = "\x1b[2J\x1b]0;owned\x07 half \ud800 <script>1</script> \u202e\n```python\nprint(0)\n```"
PROBLEM = {"prompt": "Print twice the number.", "ground_truth": {"inputs": ["21\n"], "outputs": ["42\n"]}}
RUN_FILES = ("work_order.json", "ledger.sqlite3")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two datasets; two of its answers were never given."""
    directory = tmp_path_factory.mktemp("judged")
    named = [("sums", "a"), ("sums", "b/../c"), ("sums", "none"), ("more", "d")]
    problems = [{**PROBLEM, "dataset": name, "problem_id": problem} for name, problem in named]
    answers = [("a", RIGHT), ("a", WRONG), ("b/../c", HOSTILE), ("b/../c", RIGHT), ("d", RIGHT)]
    done = judge_rows(directory, problems, [{"problem_id": name, "response": text} for name, text in answers])
    assert done.returncode == 3, done.stderr
    return directory / "run"


def stopped_copy(run: Path, target: Path) -> Path:
    """Copy what a run that was killed leaves behind."""
    target.mkdir()
    for name in RUN_FILES:
        shutil.copy(run / name, target / name)
    return target


def exported(command: Command, run: Path | str, output: Path, *flags: str) -> str:
    done = command("export", "inspect", run, "--output", output, *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def member(file: Path, name: str) -> Any:
    with zipfile.ZipFile(file) as log:
        return json.loads(log.read(name))


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text of a JSON document; the digits of its numbers may be anything."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inside in value.values() if isinstance(value, dict) else value:
            yield from texts_in(inside)


def test_export_inspect_writes_a_file_per_dataset(evalrun_here: Command, judged: Path, tmp_path: Path) -> None:
    said = exported(evalrun_here, judged, tmp_path / "logs")
    assert sorted(file.name for file in (tmp_path / "logs").iterdir()) == ["more.eval", "sums.eval"]
    assert "sums.eval: 6 samples" in said
    exported(evalrun_here, judged, tmp_path / "one.eval", "--dataset", "more")
    assert (tmp_path / "one.eval").read_bytes() == (tmp_path / "logs" / "more.eval").read_bytes()
    (sample,) = member(tmp_path / "one.eval", "summaries.json")
    assert (sample["id"], sample["input"]) == ("d", "Print twice the number.")


@pytest.mark.parametrize(
    ("output", "flags", "message"),
    [
        ("x.eval", (), "a log holds one dataset, and the run has sums, more: name a directory"),
        ("x.eval", ("--dataset", "other"), "--dataset other: the run has sums, more"),
        ("taken.txt", (), "write a name that ends in .eval, or a directory"),
        ("taken.txt/x.eval", ("--dataset", "sums"), "taken.txt/x.eval: "),
    ],
)
def test_export_inspect_with_unusable_output_or_dataset_is_refused(
    evalrun_here: Command, judged: Path, tmp_path: Path, output: str, flags: tuple[str, ...], message: str
) -> None:
    (tmp_path / "taken.txt").write_text("mine")
    refused = evalrun_here("export", "inspect", judged, "--output", tmp_path / output, *flags)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["taken.txt"]


def test_export_inspect_pruned_run_is_refused(evalrun_here: Command, judged: Path, tmp_path: Path) -> None:
    shutil.copytree(judged, tmp_path / "run")
    assert evalrun_here("prune", tmp_path, "--retain-completions-days", "0").returncode == 0
    for place in (tmp_path / "run", (tmp_path / "run").as_uri()):
        refused = evalrun_here("export", "inspect", place, "--output", tmp_path / "logs")
        assert (refused.returncode, "its answers are gone" in refused.stderr) == (2, True), refused.stderr


def test_export_inspect_unfinished_run_has_status_started_while_owned_and_else_cancelled(
    evalrun_here: Command, judged: Path, tmp_path: Path
) -> None:
    run = stopped_copy(judged, tmp_path / "run")
    exported(evalrun_here, run, tmp_path / "stopped.eval", "--dataset", "sums")
    with LedgerLock(run / "ledger.sqlite3"):
        exported(evalrun_here, run, tmp_path / "running.eval", "--dataset", "sums")
    for name, status in (("stopped", "cancelled"), ("running", "started")):
        header = member(tmp_path / f"{name}.eval", "header.json")
        assert (header["status"], "results" in header) == (status, False)
        assert len(member(tmp_path / f"{name}.eval", "summaries.json")) == 4  # two answers never came


def test_export_inspect_outputs_without_run_configuration_have_no_prompts(
    evalrun_here: Command, judged: Path, tmp_path: Path
) -> None:
    shutil.copytree(judged, tmp_path / "run")
    (tmp_path / "run" / "work_order.json").unlink()
    for place in (tmp_path / "run", f"file://{tmp_path}/run"):
        assert "the logs have no prompts" in exported(evalrun_here, place, tmp_path / "logs")
        assert {each["input"] for each in member(tmp_path / "logs" / "sums.eval", "summaries.json")} == {""}


def test_export_inspect_holds_no_private_test_and_scores_the_first_turn(evalrun_here: Command, tmp_path: Path) -> None:
    problems, answers = write_recorded_turns(tmp_path)
    with playback(problems, answers) as address:
        run = write_turns_run(tmp_path, problems)
        done = evalrun("run", run, "--local", "--endpoint", f"{address}/v1", "--output", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    exported(evalrun_here, tmp_path / "run", tmp_path / "sums.eval")
    with zipfile.ZipFile(tmp_path / "sums.eval") as log:
        texts = [text for name in log.namelist() for text in texts_in(json.loads(log.read(name)))]
    assert not [number for number in HIDDEN if number in "".join(texts)]
    summaries = member(tmp_path / "sums.eval", "summaries.json")
    assert len(summaries) == len(ANSWERS)
    accepted = [each["scores"]["accepted"]["value"] == "C" for each in summaries]
    assert sum(accepted) / len(accepted) == BY_HAND["accepted_at_1"]
    sample = member(tmp_path / "sums.eval", "samples/third_epoch_1.json")
    assert len(sample["metadata"]["later_turns"]) == 2
    assert "Add two numbers (third)." in sample["input"] != "Add two numbers (third)."  # as it was sent
    assert sample["started_at"] < sample["completed_at"]
    exported(evalrun_here, tmp_path / "run", tmp_path / "with.eval", "--with-tests")
    assert HIDDEN[0] in json.dumps(member(tmp_path / "with.eval", "samples/never_epoch_1.json"))


def read_back(file: Path, converted: Path) -> dict[str, Any]:
    """Return what the real package finds in a log, which it also writes as JSON."""
    if not PYTHON:
        pytest.skip("EVALRUN_TEST_INSPECT names no interpreter with the extra inspect")
    paths = os.pathsep.join(str(PROJECT / "libs" / name / "src") for name in ("data", "runtime", "api", "registry"))
    done = subprocess.run(
        [PYTHON, str(READER), str(file), sysconfig.get_path("purelib"), str(converted)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.rpartition("FOUND ")[2])
    return found


def verdicts(run: Path) -> dict[str, bool | None]:
    return {f"{row['problem_id']}#{row['sample'] + 1}": row["accepted"] for row in results(run)}


def test_exported_log_is_readable_by_inspect(evalrun_here: Command, judged: Path, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    file = tmp_path / "logs" / "sums.eval"
    exported(evalrun_here, judged, file, "--dataset", "sums")
    found = read_back(file, tmp_path / "back.json")
    rows = {f"{row['problem_id']}#{row['sample'] + 1}": row for row in results(judged) if row["dataset"] == "sums"}
    assert found["status"] == "error"  # partial results: two answers are missing
    assert found["listed"] == [["sums", True]]
    assert found["is_same"]
    assert sorted(found["one_by_one"]) == sorted(found["summaries"]) == sorted(rows)
    value = {True: "C", False: "I", None: None}
    for key, row in rows.items():
        sample = found["samples"][key]
        assert (sample["answer"], sample["accepted"]) == (row["response"], value[row["accepted"]])
        assert sample["input"] == PROBLEM["prompt"]
        assert sample["error"] == (row["not_judged_reason"] or None)
    assert [key for key, each in found["samples"].items() if each["error"]] == ["none#1", "none#2"]
    assert found["samples"]["b/../c#1"]["answer"] == HOSTILE.replace("\ud800", "\ufffd")
    summary = json.loads((judged / "summary.json").read_text())["datasets"]["sums"]["metrics"]["accepted_at_1"]
    assert found["headline"] == ["accepted_at_1", summary["value"]]
    assert found["metrics"]["accepted_at_1_low"] == summary["low"]
    assert found["metrics"]["accepted_at_1_high"] == summary["high"]
    assert {key: each for key, each in found["frame"].items() if each in "CI"} == {
        key: value[row["accepted"]] for key, row in rows.items() if row["accepted"] is not None
    }
    assert float(found["eval_columns"]["score_accepted_accepted_at_1"]) == summary["value"]


def test_inspect_and_evalrun_read_a_stopped_run_alike_and_its_answers_are_judged_again_alike(
    evalrun_here: Command, judged: Path, tmp_path: Path
) -> None:
    run = stopped_copy(judged, tmp_path / "run")
    exported(evalrun_here, run, tmp_path / "sums.eval", "--dataset", "sums")
    found = read_back(tmp_path / "sums.eval", tmp_path / "back.json")
    assert (found["status"], "headline" in found) == ("cancelled", False)
    assert found["read_by_evalrun"] == {key: each["answer"] for key, each in found["samples"].items()}
    done = evalrun(
        "judge", "--problems", judged.parent / "problems.jsonl", "--responses", tmp_path / "back.json",
        "--output", tmp_path / "again",
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert {key: each for key, each in verdicts(tmp_path / "again").items() if each is not None} == {
        key: each["accepted"] == "C" for key, each in found["samples"].items()
    }


def test_inspect_reads_a_run_of_recorded_answers(evalrun_here: Command, tmp_path: Path) -> None:
    if not RECORDED.exists():
        pytest.skip(f"no recorded completions: {RECORDED} (set EVALRUN_TEST_DATA)")
    problems = RECORDED.parents[1] / "humaneval" / "HumanEval.jsonl.gz"
    done = evalrun("judge", "--problems", problems, "--responses", RECORDED, "--output", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    exported(evalrun_here, tmp_path / "run", tmp_path / "humaneval.eval")
    found = read_back(tmp_path / "humaneval.eval", tmp_path / "back.json")
    assert found["status"] == "success"
    assert {key: each["accepted"] == "C" for key, each in found["samples"].items()} == verdicts(tmp_path / "run")
    assert found["read_by_evalrun"] == {
        f"{row['problem_id']}#{row['sample'] + 1}": row["response"] for row in results(tmp_path / "run")
    }
