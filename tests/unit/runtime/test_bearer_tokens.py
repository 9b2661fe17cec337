"""Tokens from a file: which are accepted, which is sent, and what happens when the file changes."""

import os
import tempfile
from pathlib import Path

import pytest
from pydantic import SecretStr

from evalrun_runtime.connections.bearer_tokens import BearerTokens, authorization
from evalrun_runtime.connections.reloaded_files import CHECK_SECONDS, ReloadedFiles
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.settings import ServiceSettings


@pytest.mark.parametrize("tokens", [(), ("",), ("a", " "), ("ä",), ("a\nb",)])
def test_token_that_no_header_may_hold_is_refused(tokens: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="token"):
        BearerTokens(*tokens)


@pytest.mark.parametrize("text", ["", "\n \n", "ä\n", "a\x07\n"])
def test_a_file_without_a_token_starts_no_server(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(BadInputError, match=str(file)):
        BearerTokens(file=file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="token: No such file"):
        BearerTokens(file=tmp_path / "token")


def test_each_line_is_accepted_and_the_first_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("new\n\n old \n")
    tokens = BearerTokens(file=file)
    assert authorization(tokens) == {"Authorization": "Bearer new"}
    assert [tokens.accept(f"Bearer {token}") for token in ("new", "old", "", "other", "new\nold")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert not tokens.accept("new")


def test_token_and_token_file_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="token and token_file are both set"):
        ServiceSettings(token=SecretStr("a"), token_file=tmp_path / "token")
    assert BearerTokens.load(None, None) is None
    with pytest.raises(ValueError, match="not loopback"):
        ServiceSettings(host="0.0.0.0")
    assert ServiceSettings(host="0.0.0.0", token_file=tmp_path / "token").token is None


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def numbers(contents: object) -> list[int]:
    assert isinstance(contents, list)
    return [int(content) for content in contents]


def exchange(directory: Path, texts: dict[str, str]) -> None:
    """Exchange files as the kubelet does: those of a new directory, by one link."""
    directory.mkdir(exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix="..", dir=directory))
    for name, text in texts.items():
        (new / name).write_text(text)
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"..data/{name}")
    link = directory / "..data_tmp"
    link.symlink_to(new.name)
    os.replace(link, directory / "..data")  # noqa: PTH105 - of a link, not of what it names


def test_files_are_read_again_together(tmp_path: Path) -> None:
    directory, clock = tmp_path / "volume", Clock()
    exchange(directory, {"a": "1", "b": "2"})
    files = ReloadedFiles([directory / "a", directory / "b"], numbers, clock)
    exchange(directory, {"a": "3", "b": "4"})
    assert files.current == [1, 2]
    clock.now += CHECK_SECONDS
    assert files.current == [3, 4]


def test_unusable_file_is_logged_once_and_the_last_usable_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory, clock = tmp_path / "volume", Clock()
    exchange(directory, {"a": "1"})
    files = ReloadedFiles([directory / "a"], numbers, clock)
    exchange(directory, {"a": "none"})
    clock.now += CHECK_SECONDS
    assert files.current == [1]
    assert "the last that could be used stay in use" in caplog.text
    caplog.clear()
    clock.now += CHECK_SECONDS
    assert files.current == [1]
    assert not caplog.text  # once a change, not once a second
    (directory / "a").unlink()
    clock.now += CHECK_SECONDS
    assert files.current == [1]
    exchange(directory, {"a": "5"})
    clock.now += CHECK_SECONDS
    assert files.current == [5]
