"""Callers by token."""

from pathlib import Path

import pytest

from evalrun_reward.callers import Callers
from evalrun_runtime.exits import BadInputError


def test_find_run_returns_the_run_of_an_exact_token_only(tmp_path: Path) -> None:
    file = tmp_path / "callers"
    file.write_text("# training\ngrpo-7b  s3cret\n\ndpo t0ken\n")
    callers = Callers(file)
    assert callers.find_run("Bearer s3cret") == "grpo-7b"
    assert callers.find_run("Bearer t0ken") == "dpo"
    assert [callers.find_run(given) for given in ("", "Bearer ", "s3cret", "Bearer s3cret ", "Bearer é")] == [None] * 5
    assert set(callers.runs) == {"grpo-7b", "dpo"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it names no caller"),
        ("grpo\n", "line 1: write RUN TOKEN"),
        ("grpo a b\n", "line 1: write RUN TOKEN"),
        ("grpo a\ngrpo b\n", "line 2: grpo has a token already"),
        ("grpo a\ndpo a\n", "line 2: another run has this token"),
    ],
)
def test_malformed_callers_file_is_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "callers"
    file.write_text(text)
    with pytest.raises(BadInputError, match=message):
        Callers(file)
