"""`python -m evalrun_data.governance prepare|audit|show`: `evalrun data` for a pod, where the command line is not."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from evalrun_data.governance.commands import MIN_COSINE, MeaningOptions, audit_data, prepare_data, show_data
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.termination import end_with


def main(arguments: Sequence[str] | None = None) -> ExitCode:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="evalrun data", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare")
    prepare.add_argument("plan", type=Path)
    prepare.add_argument("--output", type=Path, required=True)
    prepare.add_argument("--sandbox-fusion")
    audit = commands.add_parser("audit")
    audit.add_argument("directory", type=Path)
    audit.add_argument("--allow", type=Path)
    audit.add_argument("--embedder", type=Path)
    audit.add_argument("--min-cosine", type=float, default=MIN_COSINE)
    show = commands.add_parser("show")
    show.add_argument("directory", type=Path)
    given = parser.parse_args(arguments)
    try:
        if given.command == "prepare":
            return prepare_data(given.plan, output=given.output, sandbox_fusion=given.sandbox_fusion)
        if given.command == "audit":
            meaning = MeaningOptions(given.embedder, given.min_cosine) if given.embedder else None
            return audit_data(given.directory, allow=given.allow, meaning=meaning)
        return show_data(given.directory)
    except BadInputError as error:
        return end_with(error, ExitCode.BAD_INPUT)


if __name__ == "__main__":
    sys.exit(main())
