"""`python -m evalrun_aggregator`: read the settings, serve, drain."""

import sys
from collections.abc import Sequence

from evalrun_runtime.early_signals import end_on_signal

if __name__ == "__main__":
    # Signals are handled before the imports below, which take seconds on a busy node.
    end_on_signal()

from evalrun_aggregator.app import Aggregator
from evalrun_aggregator.ledger.errors import LedgerError
from evalrun_aggregator.settings import AggregatorSettings
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.late_arguments import complete
from evalrun_runtime.process import run_service
from evalrun_runtime.settings import load_settings
from evalrun_runtime.termination import end_with


def main(argv: Sequence[str]) -> int:
    """Run the aggregator until SIGTERM, and return the exit code."""
    try:
        settings = load_settings(AggregatorSettings, argv, program="evalrun serve aggregator")
        return run_service("aggregator", settings, lambda: Aggregator(settings))
    except BadInputError as error:
        return end_with(error, ExitCode.BAD_INPUT)
    except (LedgerError, OSError) as error:
        return end_with(error, ExitCode.FAILED)


if __name__ == "__main__":
    sys.exit(main(complete(sys.argv[1:])))
