"""The command `reward-check`."""

import sys
from pathlib import Path

import click

from evalrun_cli.commands.group import add_judging_flags, add_printing_flags, evalrun
from evalrun_cli.local.options import LocalOptions, Printing
from evalrun_cli.reward_check.ways import WAYS


@evalrun.command(name="reward-check")
@click.option(
    "--trainer",
    required=True,
    type=click.Choice(list(WAYS)),
    help="Who asks for the rewards. none: the package evalrun_trainers, without a trainer.",
)
@click.option(
    "--python",
    metavar="PROGRAM",
    default=sys.executable,
    type=click.Path(path_type=Path),
    help="Interpreter that has the trainer and evalrun_trainers. Default: this command's own.",
)
@click.option("--answers", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="How many answers.")
@click.option(
    "--faults",
    type=click.FloatRange(0, 1),
    default=0.05,
    show_default=True,
    metavar="SHARE",
    help="Share of all calls that are broken.",
)
@add_judging_flags
@add_printing_flags
def reward_check(
    trainer: str, python: Path, answers: int, faults: float, options: LocalOptions, printing: Printing
) -> int:
    """Check what rewards a trainer gets while calls to its sandbox fail.

    \b
    evalrun reward-check --trainer verl --python ~/verl/bin/python

    Answers with known rewards are judged through the trainer's own client of SandboxFusion, if it has one, and through
    evalrun's reward service: without trouble; with a share of all calls broken (an error 500, a connection cut before
    or after the work, half an answer, another one, a late one); and with the sandbox and the judge killed once.

    Exit code 1: evalrun gave a wrong reward. 3: it gave none for an answer.
    """
    from evalrun_cli.reward_check.check import check_rewards
    from evalrun_cli.reward_check.passes import Trainer

    return check_rewards(Trainer(trainer, python), answers, faults, options, printing)
