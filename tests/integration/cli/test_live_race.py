"""`evalrun race` of EvalRuns that are under way: each asks a server of its own, and a dropped one is asked no more."""

import json
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.command_line import answers_stored, evalrun, evalrun_started, results, summary
from builders.data import write_jsonl
from builders.playback import playback

from evalrun_cli.local.live_race import next_block
from evalrun_results.sequential.order import order_problems
from evalrun_results.sequential.race import run_race

DATASET, PROBLEMS, SEED = "sums", 80, 7
SOLVED = {"best": 76, "behind": 56, "far": 8}
"""Problems that each model solves: those with the lowest numbers of an order of its own."""
RIGHT, WRONG = "print(sum(map(int, input().split())))", "print(0)"


def solves(model: str) -> dict[str, bool]:
    order = np.random.default_rng(sorted(SOLVED).index(model)).permutation(PROBLEMS)
    return {str(problem): bool(place < SOLVED[model]) for place, problem in enumerate(order)}


def write_answers(directory: Path, model: str) -> Path:
    """Write what a model answers."""
    rows = [
        {
            "dataset": DATASET,
            "problem_id": name,
            "sample": 0,
            "response": f"```python\n{RIGHT if right else WRONG}\n```",
        }
        for name, right in solves(model).items()
    ]
    return write_jsonl(directory / f"{model}.jsonl", rows)


@pytest.fixture
def files(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[Path]]:
    """The EvalRuns of three models that are served."""
    truth = {"inputs": ["1 2\n"], "outputs": ["3\n"]}
    problems = [
        {"dataset": DATASET, "split": "test", "problem_id": str(number), "prompt": f"Add two numbers ({number}).",
         "ground_truth": truth, "limits": {"time_seconds": 2}}
        for number in range(PROBLEMS)
    ]  # fmt: skip
    source = write_jsonl(tmp_path / "problems.jsonl", problems)
    seconds = getattr(request, "param", 0.0)
    with ExitStack() as stack:
        yield [
            write_run(
                tmp_path,
                model,
                stack.enter_context(playback(source, write_answers(tmp_path, model), model=model, seconds=seconds)),
            )
            for model in SOLVED
        ]


def write_run(directory: Path, model: str, address: str, **spec: object) -> Path:
    run = {
        "apiVersion": "evalrun.dev/v1alpha1",
        "kind": "EvalRun",
        "metadata": {"name": model},
        "spec": {
            "model": {"path": model},
            "datasets": [{"name": DATASET, "source": "problems.jsonl"}],
            "protocol": {"seed": SEED},
            "endpoints": [{"url": f"{address}/v1"}],
            **spec,
        },
    }
    (directory / f"{model}.yaml").write_text(json.dumps(run))
    return directory / f"{model}.yaml"


def expected_race() -> dict[str, int | None]:
    """Return after how many problems a race over all answers drops each model."""
    order = order_problems(SEED, DATASET, map(str, range(PROBLEMS)))
    values = np.array([[float(solves(model)[name]) for name in order] for model in SOLVED])
    found = run_race(values, values, "benchmark", PROBLEMS)
    return dict(zip(SOLVED, found.dropped_after, strict=True))


def blocks(until: int) -> list[int]:
    """Return the sizes of a race's blocks, up to the first with so many problems."""
    sizes = [next_block(0, None)]
    while sizes[-1] < until:
        sizes.append(next_block(sizes[-1], PROBLEMS))
    return sizes


def assert_as_expected(output: Path, race: Mapping[str, Any]) -> None:
    """Check that the race drops whom one over all answers drops, and asks it for one block more at most."""
    expected = expected_race()
    found = {Path(each["place"]).name: each["dropped_after"] for each in race["runners"]}
    assert found == expected
    ends = {model: after or max(each for each in expected.values() if each) for model, after in expected.items()}
    order = order_problems(SEED, DATASET, map(str, range(PROBLEMS)))
    for model, after in ends.items():
        needed = blocks(after)[-1]
        answered = {row["problem_id"] for row in results(output / model)}
        assert answered == set(order[: len(answered)])
        assert len(answered) in {needed, next_block(needed, PROBLEMS)}


def test_live_race_drops_the_same_runs_as_a_full_race_and_stops_their_generation(
    files: list[Path], tmp_path: Path
) -> None:
    output = tmp_path / "race"
    done = evalrun("race", *files, "--output", output, "--json", timeout=500.0)
    assert done.returncode == 0, done.stdout + done.stderr
    race = json.loads(done.stdout)
    assert [Path(each).name for each in race["best"]] == ["best"]
    assert race == json.loads((output / "race.json").read_text())
    assert_as_expected(output, race)
    stopped = summary(output / "far")["stoppedEarly"]
    assert stopped["by"] == "race"
    assert stopped["datasets"][DATASET]["problems"] < PROBLEMS
    again = evalrun("race", output / "best", output / "behind", output / "far", "--json")
    assert json.loads(again.stdout)["best"] == [str(output / "best")]
    done = evalrun("resume", output / "far")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(results(output / "far")) == PROBLEMS
    assert "stoppedEarly" not in summary(output / "far")


def stop_once_answered(command: Sequence[str | Path], output: Path) -> None:
    """Stop a command in mid-run, when a run of it has two more answers."""
    before = answers_stored(output)
    with evalrun_started(*command) as process:
        deadline = time.monotonic() + 120
        while answers_stored(output) < before + 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=200)
    assert process.returncode == 130, said
    assert "nothing is lost" in said


@pytest.mark.parametrize("files", [0.4], indirect=True)
def test_stopped_race_is_continued_and_gets_the_same_decision(files: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "race"
    command: tuple[str | Path, ...] = ("race", *files, "--output", output, "--json")
    stop_once_answered(command, output / "best")
    done = evalrun(*command, timeout=500.0)
    assert done.returncode == 0, done.stdout + done.stderr
    race = json.loads(done.stdout)
    assert_as_expected(output, race)

    # A run that lost is resumed by itself and stopped: it has answers then that the race never asked for.
    stop_once_answered(("resume", output / "far"), output / "far")
    done = evalrun(*command, timeout=500.0)
    assert done.returncode == 0, done.stdout + done.stderr
    again = json.loads(done.stdout)
    decided = ("best", "stopped_after", "drawn", "not_judged", "needed")
    assert [again[name] for name in decided] == [race[name] for name in decided]
    assert [each["dropped_after"] for each in again["runners"]] == [each["dropped_after"] for each in race["runners"]]
