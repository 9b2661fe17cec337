"""Environment variables of gRPC. It reads them when it is imported, so whoever starts a service sets them."""

from typing import Final

GRPC_ENVIRONMENT: Final = {
    # Its fork handlers serve programs that use gRPC in a forked child. Ours fork only to execute another program (the
    # judge its zygote); under load the handlers once cost such a child its life before it could.
    "GRPC_ENABLE_FORK_SUPPORT": "false",
    # Sockets are read by the thread that waits for completions, as in every release before 1.80, and not by threads of
    # their own that have to be woken: about an eighth less CPU per request in the gateway, a fifth less in
    # its client (benchmarks/gateway_overhead.py). gRPC means to take this choice away in some later release
    # (https://github.com/grpc/grpc/pull/42828); tests/contract notices.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
}
