"""`python -m evalrun_judge`: read the settings, serve, drain."""

import sys
from collections.abc import Sequence

from evalrun_runtime.early_signals import end_on_signal

if __name__ == "__main__":
    # Signals are handled before the imports below, which take seconds on a busy node.
    end_on_signal()

from evalrun_judge.app import build_gateway
from evalrun_judge.settings import JudgeSettings
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.late_arguments import complete
from evalrun_runtime.process import run_service
from evalrun_runtime.settings import load_settings
from evalrun_runtime.termination import end_with


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM. Return the exit code."""
    try:
        settings = load_settings(JudgeSettings, argv, program="evalrun serve judge")
        return run_service("judge", settings, lambda: build_gateway(settings))
    except (BadInputError, OSError) as error:
        return end_with(error, ExitCode.BAD_INPUT)


if __name__ == "__main__":
    sys.exit(main(complete(sys.argv[1:])))
