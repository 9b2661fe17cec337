"""Every subcommand: its flags and its help, a module a purpose.

What a command runs is imported inside its function, to keep `evalrun --help` fast.
"""

from evalrun_cli.commands import comparing, converting, datasets, judging, running, scheduling, serving
from evalrun_cli.commands.group import COMPARATORS, evalrun

__all__ = [
    "COMPARATORS",
    "comparing",
    "converting",
    "datasets",
    "evalrun",
    "judging",
    "running",
    "scheduling",
    "serving",
]
