"""`python -m evalrun_generator.rollout`: launch a run's replicas, generate what its ledger lacks, let them go, end."""

import asyncio
import sys
from collections.abc import Sequence

from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_generator.rollout.app import roll_out
from evalrun_generator.rollout.order import read_run_order
from evalrun_generator.rollout.settings import RolloutSettings
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.logs import configure_logging
from evalrun_runtime.settings import load_settings
from evalrun_runtime.tracing import start_tracing, stop_tracing


def main(argv: Sequence[str]) -> int:
    """Run the rollout; gives the exit code. Says in its last line on stderr why it is not 0."""
    try:
        settings = load_settings(RolloutSettings, argv, program="evalrun-rollout")
        configure_logging(settings.log_format, settings.log_level)
        start_tracing("generator")
        order = read_run_order(settings.work_order)
        # Only now: Ray takes seconds to load, and --help and a wrong order need none of it.
        from evalrun_generator.rollout.ray_cluster import attached, join_ray

        join_ray(settings.ray_address)
        return asyncio.run(roll_out(settings, order, attached))
    except BadInputError as error:
        print(f"evalrun: {error}", file=sys.stderr)  # noqa: T201 - the line that the user reads
        return ExitCode.BAD_INPUT
    except GenerationStoppedError as error:
        print(f"evalrun: {error}", file=sys.stderr)  # noqa: T201 - the line that the user reads
        return ExitCode.FAILED
    finally:
        stop_tracing()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
