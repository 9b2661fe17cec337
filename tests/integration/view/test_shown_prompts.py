"""Which prompts a page shows: others see none of a file that the run's writer merely named."""

import json
import os
from pathlib import Path

import pytest
from builders.aggregator.process import write_run_config

from evalrun_cli.viewer.prompt_file import PROMPT_INDEX, PROMPTS, write_prompts


def test_prompts_of_sources_inside_the_place_are_shown_to_others(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "night"
    run.mkdir(parents=True)
    write_run_config(run)
    assert write_prompts(run, tmp_path, tmp_path / "runs")
    assert len((tmp_path / PROMPTS).read_text().splitlines()) == 4


@pytest.mark.parametrize("named", ["source", "link", "template", "more"])
def test_prompts_of_files_outside_the_place_are_shown_to_no_others(tmp_path: Path, named: str) -> None:
    run, other = tmp_path / "runs" / "night", tmp_path / "other"
    for directory in (run, other):
        directory.mkdir(parents=True)
    write_run_config(other)
    (other / "template.txt").write_text("{prompt}")
    if named == "source":
        write_run_config(run, dataset={"source": str(other / "first.jsonl")})
    elif named == "template":
        write_run_config(run, dataset={"promptTemplate": str(other / "template.txt")})
    elif named == "more":
        write_run_config(run, sources={"first": [str(other / "first.jsonl")]})
    else:
        write_run_config(run)
        (run / "first.jsonl").unlink()
        (run / "first.jsonl").symlink_to(other / "first.jsonl")
    assert not write_prompts(run, tmp_path, tmp_path / "runs")
    assert not (tmp_path / PROMPTS).exists()
    assert write_prompts(run, tmp_path)  # who runs the command for himself may read them anyway


def test_prompts_of_a_replaced_run_are_written_again(tmp_path: Path) -> None:
    write_run_config(tmp_path)
    assert write_prompts(tmp_path, tmp_path)
    os.utime(tmp_path / PROMPT_INDEX, ns=(0, 0))  # as if the run came after them
    write_run_config(tmp_path, problems=2)
    assert write_prompts(tmp_path, tmp_path)
    assert len(json.loads((tmp_path / PROMPT_INDEX).read_text())) == 2
