"""`python -m evalrun_generator.rollout`: launch replicas, generate a run's missing completions, end the replicas."""

import asyncio
import sys
from collections.abc import Sequence

from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_generator.rollout.app import roll_out
from evalrun_generator.rollout.order import read_rollout_order
from evalrun_generator.rollout.settings import RolloutSettings
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.logs import configure_logging
from evalrun_runtime.settings import load_settings
from evalrun_runtime.termination import end_with
from evalrun_runtime.tracing import start_tracing, stop_tracing


def main(argv: Sequence[str]) -> int:
    """Run the rollout and return its exit code. If that is not 0, the last line on stderr says why."""
    try:
        settings = load_settings(RolloutSettings, argv, program="evalrun-rollout")
        configure_logging(settings.log_format, settings.log_level)
        start_tracing("generator")
        order = read_rollout_order(settings.work_order)
        # Imported only here: Ray takes seconds to load, and --help or an invalid run configuration do not need it.
        from evalrun_generator.rollout.ray_cluster import attached, join_ray

        join_ray(settings.ray_address)
        return asyncio.run(roll_out(settings, order, attached))
    except BadInputError as error:
        return end_with(error, ExitCode.BAD_INPUT)
    except GenerationStoppedError as error:
        return end_with(error, ExitCode.FAILED, cause=error.cause)
    finally:
        stop_tracing()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
