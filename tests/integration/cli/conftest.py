"""The command in the tests' own process, for the tests of this directory that need no other one."""

from pathlib import Path
from subprocess import CompletedProcess

import pytest
from builders.command_line import Command

from evalrun_cli.__main__ import main


@pytest.fixture
def evalrun_here(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command in this process: another one spends most of a second on imports.

    For what starts no service: offline commands, and bad input.
    """

    def run(*arguments: str | Path) -> CompletedProcess[str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return CompletedProcess(arguments, int(str(ended.value.code)), said.out, said.err)

    return run
