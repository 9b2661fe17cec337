"""Where `evalrun serve reward` keeps sessions if nobody says."""

from pathlib import Path

import pytest

from evalrun_cli.local.reward_server import STORE_NAME, add_default_store, share_flags
from evalrun_runtime.exits import BadInputError


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--session-store", "s"], {}),
        (["--session-store=s"], {}),
        (["--config", "reward.yaml"], {}),
        (["--settings"], {}),
        ([], {"EVALRUN_REWARD_SESSION_STORE": "s"}),
    ],
)
def test_add_default_store_named_store_stays(arguments: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    assert add_default_store(arguments, environment, tmp_path) == arguments
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variables", "directory"), [({}, "home/.local/state/evalrun"), ({"XDG_STATE_HOME": "state"}, "state/evalrun")]
)
def test_add_default_store_no_store_is_a_file_in_the_state_directory(
    variables: dict[str, str], directory: str, tmp_path: Path
) -> None:
    environment = {name: str(tmp_path / value) for name, value in variables.items()}
    arguments = add_default_store(["--port", "1"], environment, tmp_path / "home")
    assert arguments == ["--port", "1", "--session-store", str(tmp_path / directory / STORE_NAME)]
    assert (tmp_path / directory).stat().st_mode & 0o777 == 0o700


def test_add_default_store_without_a_writable_directory_says_what_to_name(tmp_path: Path) -> None:
    (tmp_path / ".local").write_text("a file")
    with pytest.raises(BadInputError, match=r"--session-store: its default directory .* name a file"):
        add_default_store([], {}, tmp_path)


def test_a_judge_that_is_started_here_shares_its_slots_as_the_service_does() -> None:
    arguments = ["--problems", "p.jsonl", "--share", "a=3", "--priority=a=low", "--port", "1", "--share=b=2"]
    assert share_flags(arguments, {}) == ["--share", "a=3", "--share", "b=2", "--priority", "a=low"]
    assert share_flags(["--problems", "p.jsonl"], {}) == []


def test_share_flags_variables_serve_where_no_flag_is_given() -> None:
    variables = {"EVALRUN_REWARD_SHARE": "a=3,b=2", "EVALRUN_REWARD_PRIORITY": "a=low"}
    assert share_flags(["--share", "c=5"], variables) == ["--share", "c=5", "--priority", "a=low"]
