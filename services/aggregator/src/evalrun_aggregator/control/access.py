"""Decides who may control a run: whoever can read the file beside its ledger that holds the address and a token.

The file has mode 0600 and lasts as long as the process; the server listens on loopback. So on one machine only the user
of the run may control it, and in a cluster whoever may run commands in the aggregator's pod.
"""

import json
import logging
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from evalrun_aggregator.settings import AggregatorSettings
from evalrun_proto.ledger.v1 import ledger_pb2_grpc
from evalrun_runtime.atomic_files import write_atomically
from evalrun_runtime.connections.grpc_server import GrpcServer

logger = logging.getLogger(__name__)

SERVICE_NAME: Final = "evalrun.ledger.v1.ControlService"
SUFFIX: Final = ".control"
LOOPBACK: Final = "127.0.0.1"
MODE: Final = 0o600


@dataclass(frozen=True)
class ControlAccess:
    """Address and token of a run's control."""

    address: str
    token: str = field(repr=False)


def access_path(ledger: Path) -> Path:
    """Return the path of the file that gives access to the control of a ledger's run."""
    return ledger.with_name(ledger.name + SUFFIX)


def read_access(ledger: Path) -> ControlAccess | None:
    """Return the access to the control of a ledger's run; None while nobody serves it.

    Raises:
        PermissionError: the run belongs to another user.
    """
    try:
        content = json.loads(access_path(ledger).read_bytes())
        return ControlAccess(str(content["address"]), str(content["token"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    # The file was written by a version with another format.
    except (ValueError, KeyError, TypeError):
        return None


class ControlServer:
    """Serves the control of a run on loopback.

    Args:
        settings: the aggregator's settings.
        ledger: the run's ledger.
    """

    def __init__(self, settings: AggregatorSettings, ledger: Path) -> None:
        self._path = access_path(ledger)
        self._token = secrets.token_urlsafe(32)
        own = {
            "host": LOOPBACK, "port": 0, "token": SecretStr(self._token), "token_file": None, "tls_folder": None,
            "health_port": None,
        }  # fmt: skip
        self._server = GrpcServer(settings.model_copy(update=own), [SERVICE_NAME])

    async def start(self, service: ledger_pb2_grpc.ControlServiceServicer) -> None:
        """Serve, and write the file. A run whose file cannot be written continues without control."""
        ledger_pb2_grpc.add_ControlServiceServicer_to_server(service, self._server.server)
        content = json.dumps({"address": await self._server.start(), "token": self._token})
        try:
            write_atomically(self._path, content.encode() + b"\n", MODE)
        except OSError as error:
            logger.warning("the run cannot be controlled: %s: %s", self._path, error.strerror)

    async def stop(self) -> None:
        """Remove the file, and end the calls."""
        self._path.unlink(missing_ok=True)
        await self._server.stop(0)
