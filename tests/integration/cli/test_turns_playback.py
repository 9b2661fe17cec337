"""EVAL@turns on one machine: recorded answers of each turn, judged for real, killed between turns and resumed."""

import json
import signal
import sqlite3
import threading
import time
from pathlib import Path

from builders.command_line import evalrun, evalrun_started, results, summary
from builders.playback import playback
from builders.recorded_turns import BY_HAND, DATASET, HIDDEN, ROWS, write_recorded_turns, write_turns_run


def turns_opened(ledger: Path) -> int:
    """Return how many turns have opened so far; 0 before there is a ledger."""
    try:
        with sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True) as connection:
            (count,) = connection.execute("SELECT count(*) FROM feedbacks").fetchone()
    except sqlite3.OperationalError:
        return 0
    return int(count)


def test_recorded_turns_recover_as_computed_by_hand_killed_and_resumed(tmp_path: Path) -> None:
    problems, answers = write_recorded_turns(tmp_path)
    run = write_turns_run(tmp_path, problems)
    output = tmp_path / "out"
    with playback(problems, answers, seconds=0.5) as address:
        arguments = ("run", run, "--local", "--endpoint", f"{address}/v1")
        with evalrun_started(*arguments, "--output", output) as process:
            deadline, pause = time.monotonic() + 120, threading.Event()  # another process writes the ledger
            while not turns_opened(output / "ledger.sqlite3") and process.poll() is None:
                assert time.monotonic() < deadline
                pause.wait(0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert not (output / "summary.json").exists()
        done = evalrun(*arguments, "--resume", output)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "recovery rate 50.0 %" in " ".join(done.stdout.split())
    assert [(row["problem_id"], row["turn"]) for row in results(output)] == ROWS
    found = summary(output)
    metrics = found["datasets"][DATASET]["metrics"]
    assert {name: metrics[name]["value"] for name in BY_HAND} == BY_HAND
    assert found["generation"]["replicas"] == 1
    assert 0 <= found["generation"]["idle_share"] < 1
    records = [json.loads(line) for line in (output / "qa_logs" / f"{DATASET}_qa.jsonl").read_text().splitlines()]
    chats = {record["problem_id"]: record["messages"] for record in records}
    said = [message["content"] for message in chats["third"]]
    assert "ZeroDivisionError" in said[2]  # of the public test
    assert "Expected output:\n```\n3\n```" in said[2]
    assert "its output is wrong" in said[4]  # of the private test alone: no test is shown
    assert "public test" not in said[4]
    assert not [number for number in HIDDEN if number in json.dumps(chats)]
