"""Runs of a race draw the same problems, with the same tests; how they are asked may differ."""

import json
from pathlib import Path
from typing import Any

import pytest

from evalrun_cli.local.live_race import RaceRules, race_files
from evalrun_cli.local.options import LocalOptions
from evalrun_runtime.exits import BadInputError

RULES = RaceRules(dataset=None, population="benchmark")


def run_file(directory: Path, name: str, **dataset: object) -> Path:
    """Write an EvalRun whose server nobody reaches."""
    directory.mkdir(exist_ok=True)
    spec: dict[str, Any] = {
        "model": {"path": name},
        "datasets": [{"name": "own", "source": "problems.jsonl", **dataset}],
        "endpoints": [{"url": "http://127.0.0.1:1/v1"}],
    }
    file = directory / f"{name}.yaml"
    file.write_text(
        json.dumps({"apiVersion": "evalrun.dev/v1alpha1", "kind": "EvalRun", "metadata": {"name": name}, "spec": spec})
    )
    return file


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"maxProblems": 5}, "maxProblems is 5 here and None in the first file"),
        ({"source": "others.jsonl"}, r"source is '.*others.jsonl' here and '.*problems.jsonl' in the first file"),
        ({"limits": {"timeSeconds": 5}}, "limits is .* here and None in the first file"),
        ({"excludeProblems": ["a"]}, "excludeProblems is"),
    ],
)
def test_race_of_runs_with_other_problems_or_tests_is_refused(
    tmp_path: Path, other: dict[str, Any], message: str
) -> None:
    files = [run_file(tmp_path, "a"), run_file(tmp_path, "b", **other)]
    with pytest.raises(BadInputError, match=f"b.yaml: spec.datasets\\[0\\].{message}"):
        race_files(files, RULES, output=tmp_path / "race", options=LocalOptions())


def test_race_of_runs_with_sources_in_different_directories_is_refused(tmp_path: Path) -> None:
    files = [run_file(tmp_path / "x", "a"), run_file(tmp_path / "y", "b")]
    with pytest.raises(BadInputError, match=r"source is '.*y/problems.jsonl' here and '.*x/problems.jsonl'"):
        race_files(files, RULES, output=tmp_path / "race", options=LocalOptions())


def test_race_of_runs_with_different_prompts_passes_the_check_of_problems(tmp_path: Path) -> None:
    """They are refused later, because the race would write into the directory of a file."""
    files = [
        run_file(tmp_path, "a", source="builtin:demo"),
        run_file(tmp_path / "y", "b", source="builtin:demo", systemPrompt="Be short."),
    ]
    with pytest.raises(BadInputError, match=r"a.yaml lies there, which a race would write"):
        race_files(files, RULES, output=tmp_path, options=LocalOptions())
