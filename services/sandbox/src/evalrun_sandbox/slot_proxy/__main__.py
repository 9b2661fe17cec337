"""`python -m evalrun_sandbox.slot_proxy`: read the settings, serve, drain."""

import sys
from collections.abc import Sequence

from evalrun_runtime.early_signals import end_on_signal

if __name__ == "__main__":
    # Signals are handled before the imports below, which take seconds on a busy node.
    end_on_signal()

from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.process import run_service
from evalrun_runtime.settings import load_settings
from evalrun_runtime.termination import end_with
from evalrun_sandbox.slot_proxy.proxy import SlotProxy
from evalrun_sandbox.slot_proxy.settings import SlotProxySettings


def main(argv: Sequence[str]) -> int:
    """Run the proxy until SIGTERM and return its exit code."""
    try:
        settings = load_settings(SlotProxySettings, argv, program="python -m evalrun_sandbox.slot_proxy")
        return run_service("slot-proxy", settings, lambda: SlotProxy(settings))
    except BadInputError as error:
        return end_with(error, ExitCode.BAD_INPUT, program="evalrun slot-proxy")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
