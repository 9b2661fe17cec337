"""The entry point of `evalrun`. A command's imports happen only when it runs, so that help is quick."""

import logging
import sys
from collections.abc import Sequence

import click

from evalrun_cli import standard_streams
from evalrun_cli.commands import evalrun
from evalrun_cli.printable_text import PrintableFormatter, printable_lines
from evalrun_runtime.distribution import refuse_other_distribution
from evalrun_runtime.exits import BadInputError, ExitCode


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command. Exit with its exit code, or with a line that says what was wrong.

    Args:
        arguments: arguments of the command; None: the process's own.
    """
    standard_streams.prepare()
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("evalrun: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    try:
        refuse_other_distribution()
        code = evalrun.main(arguments, standalone_mode=False)
    except BadInputError as error:
        click.echo(printable_lines(f"evalrun: {error}"), err=True)
        code = ExitCode.BAD_INPUT
    except click.ClickException as error:
        error.show()
        code = ExitCode.BAD_INPUT
    except standard_streams.OutputLostError as error:
        click.echo(f"evalrun: {error}", err=True)
        code = ExitCode.FAILED
    except (click.Abort, KeyboardInterrupt):
        code = ExitCode.STOPPED
    sys.exit(int(code) if isinstance(code, int) else ExitCode.SUCCEEDED)


if __name__ == "__main__":
    main()
