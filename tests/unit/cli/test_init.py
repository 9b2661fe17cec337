"""`evalrun init`: what it writes works as it stands."""

import ast
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from evalrun_cli.commands import evalrun
from evalrun_runtime.exits import BadInputError


def init_in(directory: Path, *flags: str) -> list[Path]:
    done = CliRunner().invoke(evalrun, ["init", str(directory), *flags], standalone_mode=False, catch_exceptions=False)
    return [Path(line) for line in done.output.splitlines()]


@pytest.mark.parametrize("flags", [[], ["--kubernetes"]])
def test_init_writes_an_evalrun_that_is_valid(tmp_path: Path, flags: list[str]) -> None:
    written = init_in(tmp_path / "new", *flags)
    (manifest,) = [path for path in written if path.name == "evalrun.yaml"]
    local = [] if flags else ["--local"]
    done = CliRunner().invoke(evalrun, ["validate", str(manifest), *local], standalone_mode=False)
    assert (done.return_value, done.exception) == (0, None)


def test_init_without_flags_writes_problems_that_the_file_names(tmp_path: Path) -> None:
    written = init_in(tmp_path)
    assert [path.name for path in written] == ["answers.jsonl", "evalrun.yaml", "problems.jsonl"]
    answers, problems = (
        [json.loads(line) for line in path.read_text().splitlines()] for path in (written[0], written[2])
    )
    assert [row["problem_id"] for row in answers] == [row["problem_id"] for row in problems]
    assert "source: problems.jsonl" in written[1].read_text()


def test_init_rewards_writes_a_script_that_uses_our_reward(tmp_path: Path) -> None:
    (script,) = init_in(tmp_path, "--rewards")
    imports = {node.module for node in ast.walk(ast.parse(script.read_text())) if isinstance(node, ast.ImportFrom)}
    assert "evalrun_trainers.trl_reward" in imports


def test_init_refuses_to_replace_an_existing_file(tmp_path: Path) -> None:
    (tmp_path / "evalrun.yaml").write_text("mine")
    with pytest.raises(BadInputError, match="already there"):
        init_in(tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_init_below_a_file_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match="name a directory that can be written to"):
        init_in(tmp_path / "file" / "below")
