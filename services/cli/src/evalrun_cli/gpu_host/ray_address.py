"""Checks that a Ray cluster replies: Ray itself tries for minutes, and then ends the process without an error."""

import re
import socket
from typing import Final

import grpc

from evalrun_runtime.exits import BadInputError

ANSWER_SECONDS: Final = 5.0


def check_ray_address(address: str, *, uses_tls: bool = False, seconds: float = ANSWER_SECONDS) -> None:
    """Check that the head of a Ray cluster listens at an address.

    Args:
        address: HOST:PORT.
        uses_tls: whether Ray's connections are encrypted; then it is only checked that somebody listens.
        seconds: timeout of each of the two checks, for a listener and for Ray.

    Raises:
        BadInputError: the address is malformed, nobody listens there, or the listener is not Ray.
    """
    found = re.fullmatch(r"([^:/\s]+):([0-9]{1,5})", address)
    if found is None or not 0 < int(found[2]) < 65536:
        raise BadInputError(
            f"--ray-address {address}: write HOST:PORT of the head's GCS, as `ray start --head` says it, e.g. "
            "127.0.0.1:6379"
        )
    start_here = "start one with `ray start --head`, or leave --ray-address away: then the run starts its own"
    try:
        socket.create_connection((found[1], int(found[2])), timeout=seconds).close()
    except OSError as error:
        raise BadInputError(f"--ray-address {address}: no Ray cluster answers ({error}): {start_here}") from error
    if uses_tls:
        return
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=seconds)
        except grpc.FutureTimeoutError as error:
            raise BadInputError(
                f"--ray-address {address}: somebody listens there, but it is no Ray cluster: {start_here}"
            ) from error
