"""`python -m evalrun_aggregator.control LEDGER ACT...`: performs an act of control and prints its outcome as JSON.

`evalrun ctl er/NAME` runs this in the aggregator's pod, because the control listens on the pod's loopback only.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from google.protobuf.json_format import MessageToJson

from evalrun_aggregator.control.client import NoControlError, NotRunningError, control_ledger
from evalrun_aggregator.control.words import act_of_words
from evalrun_runtime.exits import BadInputError, ExitCode


def main(arguments: Sequence[str]) -> int:
    """Perform the act, and return the exit code."""
    try:
        if not arguments:
            raise BadInputError("name the ledger, then the act")
        response = asyncio.run(control_ledger(Path(arguments[0]), act_of_words(arguments[1:])))
    except (BadInputError, NotRunningError, NoControlError) as error:
        sys.stderr.write(f"evalrun: {error}\n")
        return ExitCode.BAD_INPUT
    sys.stdout.write(MessageToJson(response, indent=None) + "\n")
    return ExitCode.SUCCEEDED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
