"""An address of a Ray cluster that nobody answers at is told before anything is started."""

import socket
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from evalrun_api.v1alpha1 import EvalRunSpec
from evalrun_cli.gpu_host.options import GpuOptions
from evalrun_cli.gpu_host.preparation import prepare_replicas
from evalrun_cli.gpu_host.ray_address import check_ray_address
from evalrun_runtime.exits import BadInputError

LOOPBACK = "127.0.0.1"
SPEC = EvalRunSpec.model_validate(
    {
        "model": {"path": "/models/m"},
        "datasets": [{"name": "demo", "source": "builtin:demo"}],
        "rollout": {"tensorParallel": 1, "gpusPerNode": 1},
    }
)


@pytest.mark.parametrize("address", ["", "host", "host:", ":6379", "host:port", "host:0", "host:70000", "ray://host:1"])
def test_malformed_address_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(BadInputError, match="HOST:PORT") as raised:
        check_ray_address(address)
    assert "127.0.0.1:6379" in str(raised.value)


def test_closed_port_is_refused_before_an_interpreter_is_searched() -> None:
    with socket.socket() as bound:  # not listening
        bound.bind((LOOPBACK, 0))
        options = GpuOptions(ray_address=f"{LOOPBACK}:{bound.getsockname()[1]}")
        with pytest.raises(BadInputError, match="no Ray cluster answers") as raised:
            prepare_replicas(SPEC, options, "run.yaml")
    assert "ray start --head" in str(raised.value)


def test_a_server_that_is_no_ray_is_refused() -> None:
    with socket.create_server((LOOPBACK, 0)) as silent:
        address = f"{LOOPBACK}:{silent.getsockname()[1]}"
        with pytest.raises(BadInputError, match="no Ray cluster"):
            check_ray_address(address, seconds=0.1)
        check_ray_address(address, uses_tls=True, seconds=0.1)  # what TLS hides is Ray's to tell


def test_grpc_server_is_accepted_as_ray() -> None:
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        port = server.add_insecure_port(f"{LOOPBACK}:0")
        server.start()
        check_ray_address(f"{LOOPBACK}:{port}", seconds=60.0)
        server.stop(None).wait()
