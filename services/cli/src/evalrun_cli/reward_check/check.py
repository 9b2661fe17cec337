"""`evalrun reward-check`: starts the parts, runs the passes, and prints the rewards."""

import asyncio
import json
import logging
import shutil
import tempfile
from pathlib import Path

import click

from evalrun_cli.local.options import LocalOptions, Printing
from evalrun_cli.local.processes import ServiceFailedError
from evalrun_cli.reward_check.answers import make_answers
from evalrun_cli.reward_check.passes import Trainer, TrainerFailedError, run_passes, start_parts
from evalrun_cli.reward_check.result import Row, exit_code, make_json, make_row, make_table
from evalrun_cli.terminal import open_console
from evalrun_runtime.exits import BadInputError, ExitCode

logger = logging.getLogger(__name__)


def check_rewards(trainer: Trainer, number: int, share: float, options: LocalOptions, printing: Printing) -> ExitCode:
    """Check a trainer's rewards, and print them.

    Args:
        trainer: the trainer that asks.
        number: number of completions.
        share: share of the calls that are broken.
        options: the user's options for this machine.
        printing: how the result is printed.

    Raises:
        BadInputError: a part refuses its input, or the interpreter lacks a package.
    """
    options.check({"datasets": []})
    logs = Path(tempfile.mkdtemp(prefix="evalrun-reward-check-"))
    try:
        rows, version = asyncio.run(_check(trainer, number, share, options, logs, printing))
    except (ServiceFailedError, TrainerFailedError) as error:
        logger.error("%s (logs: %s)", error, logs)
        return ExitCode.FAILED
    except BadInputError:
        shutil.rmtree(logs)
        raise
    shutil.rmtree(logs)
    if printing.as_json:
        click.echo(json.dumps(make_json(rows, trainer.name, version), indent=2))
    else:
        open_console().print(make_table(rows, trainer.name, version))
    return exit_code(rows)


async def _check(
    trainer: Trainer, number: int, share: float, options: LocalOptions, logs: Path, printing: Printing
) -> tuple[list[Row], str]:
    def tell(text: str) -> None:
        if not (printing.quiet or printing.as_json):
            click.echo(text, err=True)

    await trainer.check()
    answers = make_answers(number)
    async with start_parts(logs, options) as parts:
        passes, version = await parts.supervise(run_passes(trainer, answers, share, parts, tell))
    return [make_row(each, [answer.reward for answer in answers]) for each in passes], version
