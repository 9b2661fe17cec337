"""Nothing that a command shows can steer the terminal on which it is read."""

import io
import logging
from pathlib import Path

import pytest
from rich.console import RenderableType
from rich.panel import Panel
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from evalrun_cli.__main__ import main
from evalrun_cli.local.run_session import RunSession
from evalrun_cli.printable_text import PrintableFormatter
from evalrun_cli.terminal import Terminal, open_console
from evalrun_runtime.exits import ExitCode

HOSTILE = "a\x1b]0;title\x1b[0mb\x1b[2Jc\x9b1md\u202ee\ud800"
SHOWN = "a\\x1b]0;title\\x1b[0mb\\x1b[2Jc\\x9b1md\\u202ee\\ud800"


def table() -> Table:
    made = Table(HOSTILE)
    made.add_row(HOSTILE)
    return made


@pytest.mark.parametrize(
    "shown", [HOSTILE, Text(HOSTILE), table(), Panel(HOSTILE)], ids=["str", "text", "table", "box"]
)
def test_terminal_spells_escapes_out(shown: RenderableType) -> None:
    out = io.StringIO()
    Terminal(file=out, width=200).print(shown, markup=False, soft_wrap=isinstance(shown, str | Text))
    printed = out.getvalue()
    assert SHOWN[:20] in printed  # a table may cut what is longer than its cell
    assert all(sign.isprintable() or sign == "\n" for sign in printed)


def test_terminal_keeps_its_own_styles_and_progress() -> None:
    out = io.StringIO()
    terminal = Terminal(file=out, width=200, force_terminal=True, color_system="standard")
    terminal.print(f"warning: {HOSTILE}", style="yellow", markup=False, highlight=False)
    assert out.getvalue() == f"\x1b[33mwarning: {SHOWN}\x1b[0m\n"
    with Progress(console=terminal) as progress:
        progress.add_task(HOSTILE.replace("[", ""))
    assert "\x1b]0" not in out.getvalue()


def test_a_runs_console_is_the_terminal() -> None:
    assert isinstance(RunSession().console, Terminal)


def test_printable_formatter_spells_escapes_out() -> None:
    record = logging.LogRecord("a", logging.WARNING, "", 1, "%s\nnext", (HOSTILE,), None)
    assert PrintableFormatter("evalrun: %(message)s").format(record) == f"evalrun: {SHOWN}\nnext"


def test_main_with_an_error_that_quotes_data_spells_escapes_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["validate", str(tmp_path / "no\x1b[2J.yaml")])
    assert ended.value.code == ExitCode.BAD_INPUT
    said = capsys.readouterr().err
    assert "no\\x1b[2J.yaml" in said
    assert "\x1b" not in said


def test_no_color_prints_without_styles(capsys: pytest.CaptureFixture[str]) -> None:
    open_console(environment={"NO_COLOR": "1"}).print("x", style="bold red")
    assert capsys.readouterr().out == "x\n"


def test_width_without_a_terminal_is_that_of_columns_or_the_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert open_console(width=100, environment={"COLUMNS": "60"}).width == 60
    monkeypatch.delenv("COLUMNS")
    assert open_console(width=100, environment={}).width == 100
