"""`python -m evalrun_operator`: read the settings, serve, end on SIGTERM."""

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence

import kopf

from evalrun_operator.aggregator_client import Aggregators
from evalrun_operator.app import build_operator
from evalrun_operator.handlers import build_registry
from evalrun_operator.settings import OperatorSettings
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.logs import configure_logging
from evalrun_runtime.metrics_server import start_metrics_server
from evalrun_runtime.settings import load_settings

TALKATIVE = ("aiohttp.access", "httpx2", "kopf.activities", "kopf.objects")
"""Loggers that report each request, probe and watched event at level info: several lines per second, none about a run.
"""


def main(argv: Sequence[str], aggregators: Callable[[], Aggregators] | None = None) -> int:
    """Run the operator until SIGTERM, and return the exit code.

    Args:
        argv: flags.
        aggregators: makes the client of the runs' ledgers; None: a gRPC client.
    """
    try:
        settings = load_settings(OperatorSettings, argv, program="evalrun-operator")
    except BadInputError as error:
        sys.stderr.write(f"evalrun: {error}\n")
        return ExitCode.BAD_INPUT
    configure_logging(settings.log_format, settings.log_level)
    if settings.log_level != "debug":
        for name in TALKATIVE:
            logging.getLogger(name).setLevel(logging.WARNING)
    if settings.metrics_port is not None:
        start_metrics_server(settings.metrics_port, settings.host, settings.metrics_token_sha256)
    return ExitCode.SUCCEEDED if asyncio.run(serve(settings, aggregators)) else ExitCode.FAILED


async def serve(settings: OperatorSettings, aggregators: Callable[[], Aggregators] | None = None) -> bool:
    """Run kopf with our handlers until the end is requested. Return False if the operator could not continue."""
    liveness = f"http://{settings.host}:{settings.port}/healthz" if settings.port else None
    ledgers = None if aggregators is None else aggregators()
    operator, stop = build_operator(settings, aggregators=ledgers), asyncio.Event()
    running = asyncio.create_task(
        kopf.operator(
            registry=build_registry(operator),
            standalone=True,
            # kopf itself watches nothing.
            clusterwide=True,
            liveness_endpoint=liveness,
            stop_flag=stop,
        )
    )
    broken = asyncio.create_task(operator.wait_until_broken())
    await asyncio.wait({running, broken}, return_when=asyncio.FIRST_COMPLETED)
    whole = not broken.done()
    broken.cancel()
    stop.set()
    await running
    return whole


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
