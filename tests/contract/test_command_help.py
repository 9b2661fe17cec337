"""One shape for the help of every command, and suggestions for what was mistyped."""

from collections.abc import Iterator

import click
import pytest
from builders.command_line import PROJECT
from click.shell_completion import BashComplete
from click.testing import CliRunner

from evalrun_cli.commands import evalrun


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from commands(each, f"{path} {name}")


COMMANDS = dict(commands(evalrun, "evalrun"))


def is_sentence(text: str) -> bool:
    return bool(text) and not text[0].islower() and text.endswith(".")


@pytest.mark.parametrize("path", COMMANDS)
def test_help_begins_with_a_sentence_and_describes_every_option_with_one(path: str) -> None:
    command = COMMANDS[path]
    assert is_sentence(" ".join((command.help or "").strip().split("\n\n")[0].split()))
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert is_sentence(option.help or ""), f"{path} {option.opts[-1]}: {option.help}"


@pytest.mark.parametrize("path", [path for path, command in COMMANDS.items() if not isinstance(command, click.Group)])
def test_usage_names_arguments_in_capitals(path: str) -> None:
    for argument in COMMANDS[path].params:
        if isinstance(argument, click.Argument):
            assert argument.make_metavar(click.Context(COMMANDS[path])).strip("[].").isupper()


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [
        (["jugde"], "'judge'"),
        (["data", "chekc"], "'check'"),
        (["run", "--local", "--endpiont", "x"], "'--endpoint'"),
        (["judge", "--ouput", "x"], "'--output'"),
    ],
)
def test_mistyped_command_or_flag_names_the_nearest(typed: list[str], suggested: str) -> None:
    result = CliRunner().invoke(evalrun, typed)
    assert result.exit_code == 2
    assert "id you mean" in result.output
    assert suggested in result.output


def test_shells_complete_commands_and_flags_as_the_readme_says() -> None:
    complete = BashComplete(evalrun, {}, "evalrun", "_EVALRUN_COMPLETE")
    assert [item.value for item in complete.get_completions([], "jud")] == ["judge"]
    assert "--endpoint" in [item.value for item in complete.get_completions(["run"], "--end")]
    assert "_EVALRUN_COMPLETE=bash_source evalrun" in (PROJECT / "README.md").read_text()
