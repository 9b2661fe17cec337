"""`python -m evalrun_operator`: read the settings, serve, end on SIGTERM."""

import asyncio
import logging
import sys
from collections.abc import Sequence

import kopf
from prometheus_client import start_http_server

from evalrun_operator.app import build_operator
from evalrun_operator.handlers import build_registry
from evalrun_operator.settings import OperatorSettings
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.logs import configure_logging
from evalrun_runtime.settings import load_settings

TALKATIVE = ("aiohttp.access", "httpx2", "kopf.activities", "kopf.objects")
"""Loggers that tell at level info of each request, probe and watched event: several lines a second, none of any run."""


def main(argv: Sequence[str]) -> int:
    """Run the operator until SIGTERM; gives the exit code."""
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
        start_http_server(settings.metrics_port, addr=settings.host)
    asyncio.run(serve(settings))
    return ExitCode.SUCCEEDED


async def serve(settings: OperatorSettings) -> None:
    """Run kopf with our handlers until it is told to end."""
    liveness = f"http://{settings.host}:{settings.port}/healthz" if settings.port else None
    await kopf.operator(
        registry=build_registry(build_operator(settings)),
        standalone=True,
        clusterwide=not settings.namespace,
        namespaces=settings.namespace,
        liveness_endpoint=liveness,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
