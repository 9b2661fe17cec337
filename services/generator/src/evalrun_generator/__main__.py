"""`python -m evalrun_generator`: generate the completions missing from a run's ledger, then exit."""

import asyncio
import sys
from collections.abc import Sequence

from evalrun_generator.app import generate
from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_generator.settings import GeneratorSettings
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.late_arguments import complete
from evalrun_runtime.logs import configure_logging
from evalrun_runtime.settings import load_settings
from evalrun_runtime.termination import end_with
from evalrun_runtime.tracing import start_tracing, stop_tracing


def main(argv: Sequence[str]) -> int:
    """Run the generator and return its exit code. If that is not 0, the last line on stderr says why."""
    try:
        settings = load_settings(GeneratorSettings, argv, program="evalrun-generator")
        configure_logging(settings.log_format, settings.log_level)
        start_tracing("generator")
        return asyncio.run(generate(settings))
    except BadInputError as error:
        return end_with(error, ExitCode.BAD_INPUT)
    except GenerationStoppedError as error:
        return end_with(error, ExitCode.FAILED, cause=error.cause)
    finally:
        stop_tracing()


if __name__ == "__main__":
    sys.exit(main(complete(sys.argv[1:])))
