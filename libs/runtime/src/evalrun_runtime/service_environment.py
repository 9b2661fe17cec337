"""Environment variables of gRPC and NumPy, which read them at their import: whoever starts a service sets them."""

from typing import Final

SERVICE_ENVIRONMENT: Final = {
    # Its fork handlers serve programs that use gRPC in a forked child. Ours fork only to execute another program (the
    # judge its zygote); under load the handlers once cost such a child its life before it could.
    "GRPC_ENABLE_FORK_SUPPORT": "false",
    # Sockets are read by the thread that waits for completions, as in every release before 1.80, and not by threads of
    # their own that have to be woken: about an eighth less CPU per request in the gateway, a fifth less in
    # its client (benchmarks/gateway_overhead.py). gRPC means to take this choice away in some later release
    # (https://github.com/grpc/grpc/pull/42828); tests/contract notices.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
    # NumPy's BLAS starts a thread for each core, which wait by spinning: at the end of a run of 164 answers on 16 cores
    # the aggregator used 2.1 CPU seconds with them and 0.6 without, in the same time (benchmarks/judge_command.py).
    "OPENBLAS_NUM_THREADS": "1",
}
