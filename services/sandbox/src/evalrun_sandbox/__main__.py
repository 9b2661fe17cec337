"""`python -m evalrun_sandbox`: read the settings, serve, drain."""

import sys
from collections.abc import Sequence

from evalrun_runtime.early_signals import end_on_signal

if __name__ == "__main__":
    # Signals are handled before the imports below, which take seconds on a busy node.
    end_on_signal()

from evalrun_executor.errors import Unusable
from evalrun_executor.executor import Executor
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.late_arguments import complete
from evalrun_runtime.process import run_service
from evalrun_runtime.settings import load_settings
from evalrun_runtime.termination import end_with
from evalrun_sandbox.app import SandboxService
from evalrun_sandbox.settings import SandboxSettings


def main(argv: Sequence[str]) -> int:
    """Run the sandbox until SIGTERM and return its exit code: 2 if it cannot contain programs as required."""
    try:
        settings = load_settings(SandboxSettings, argv, program="evalrun serve sandbox")
        return run_service("sandbox", settings, lambda: SandboxService(settings, Executor(settings.plan())))
    except (BadInputError, Unusable) as error:
        return end_with(error, ExitCode.BAD_INPUT)


if __name__ == "__main__":
    sys.exit(main(complete(sys.argv[1:])))
