"""`python -m evalrun_reward`: read the settings, serve, drain."""

import sys
from collections.abc import Sequence

from evalrun_runtime.early_signals import end_on_signal

if __name__ == "__main__":
    # Signals are handled before the imports below, which take seconds on a busy node.
    end_on_signal()

from evalrun_reward.app import build_service
from evalrun_reward.settings import RewardSettings
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.process import run_service
from evalrun_runtime.settings import load_settings
from evalrun_runtime.termination import end_with


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM, and return the exit code."""
    try:
        settings = load_settings(RewardSettings, argv, program="evalrun serve reward")
        return run_service("reward", settings, lambda: build_service(settings))
    except BadInputError as error:
        return end_with(error, ExitCode.BAD_INPUT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
