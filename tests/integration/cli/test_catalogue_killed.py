"""Two processes update and compact one catalogue while runs come, and are killed: every run is in it once.

`make kill-catalogue` kills them 50 times.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
from builders.catalogued_runs import catalogue_of, write_checkpoint

from evalrun_results.catalogue.location import FOLDER

KILLS = int(os.environ.get("EVALRUN_CATALOGUE_KILLS", "6"))
SEED = int(os.environ.get("EVALRUN_CATALOGUE_SEED", "51"))
TESTS = Path(__file__).parents[2]
RUNS = 5
"""Runs that are there, or change, at each kill."""


@contextmanager
def two_writers(root: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Start two writers that are at work; gives them, and kills what is left of them."""
    command = [sys.executable, "-m", "builders.catalogue_writer", str(root)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    writers = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        yield writers
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def listed_results(root: Path) -> dict[str, int]:
    """Return how many results each run has in the catalogue as it is: nothing is updated or repaired."""
    found = {}
    for row in catalogue_of(root).live_rows():
        table = pq.read_table(root / FOLDER / "results" / row["results_file"])
        found[row["place"]] = table.column("entry").to_pylist().count(row["entry"])
    return found


def test_writers_that_are_killed_lose_no_run_and_list_none_twice(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    answers: dict[str, int] = {}
    for kill in range(KILLS):
        before = dict(answers)
        with two_writers(tmp_path) as writers:  # both have listed the runs of before
            for _ in range(RUNS):
                step = chance.randrange(1, 3 * RUNS)
                answers[f"run-{step}"] = 1 + (answers.get(f"run-{step}", kill) + 1) % 7  # another size: it has changed
                write_checkpoint(tmp_path, step, [True] * answers[f"run-{step}"])
            time.sleep(chance.uniform(0.0, 0.3))
            assert [writer.poll() for writer in writers] == [None, None]
        found = listed_results(tmp_path)
        assert {place: count for place, count in before.items() if answers[place] == count}.items() <= found.items()
        assert all(found.values()), found  # what is listed has results, of whichever of its sizes
    catalogue = catalogue_of(tmp_path, now=time.time)
    catalogue.update()
    assert catalogue.update().unchanged == len(answers)
    assert listed_results(tmp_path) == answers
