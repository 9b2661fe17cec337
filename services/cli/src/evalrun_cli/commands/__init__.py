"""Every subcommand: its flags and its help, in one module per purpose.

What a command runs is imported inside its function, to keep `evalrun --help` fast.
"""

from evalrun_cli.commands import (
    attest,
    catalogue,
    compare,
    convert,
    ctl,
    datasets,
    export,
    host,
    init,
    judge,
    leaderboard,
    plan,
    publish,
    race,
    retention,
    reward_check,
    run,
    samples,
    schedule,
    serve,
    view,
)
from evalrun_cli.commands.group import evalrun

__all__ = [
    "attest",
    "catalogue",
    "compare",
    "convert",
    "ctl",
    "datasets",
    "evalrun",
    "export",
    "host",
    "init",
    "judge",
    "leaderboard",
    "plan",
    "publish",
    "race",
    "retention",
    "reward_check",
    "run",
    "samples",
    "schedule",
    "serve",
    "view",
]
