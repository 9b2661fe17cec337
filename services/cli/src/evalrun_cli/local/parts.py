"""Launches the services of a run on this machine before the command has imported its own modules."""

import asyncio
import gc
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

from evalrun_cli.local.forked_process import Fork, can_fork, fork
from evalrun_cli.local.options import LocalOptions, check_system
from evalrun_cli.local.processes import ServiceProcess
from evalrun_runtime import late_arguments
from evalrun_runtime.early_signals import end_on_signal
from evalrun_runtime.service_environment import SERVICE_ENVIRONMENT

PARTS = {
    "recorded": "evalrun_generator.recorded",
    "sandbox": "evalrun_sandbox",
    "judge": "evalrun_judge",
    "aggregator": "evalrun_aggregator",
    "generator": "evalrun_generator",
    "rollout": "evalrun_generator.gpu_host",
}
"""The parts of a run and their modules. Each part comes after the parts that it calls, and is ended before them."""

JOBS: Final = ("generator", "rollout")
"""Parts that end by themselves when every completion is stored, and serve nobody."""

FIRST_SHARED: Final = ("evalrun_runtime.process", "evalrun_executor.executor")
"""Modules that are imported before the first part is forked: every service uses the first, sandbox and judge the
second."""
SHARED: Final[Mapping[str, tuple[str, ...]]] = {
    "recorded": ("aiohttp.web",),
    "judge": ("evalrun_cli.local.runs", "evalrun_runtime.connections.grpc_server"),
}
"""Modules that are imported before a part is forked, because the part, later parts or the command itself need them too.
The sandbox comes before gRPC, which it does not use, because its start takes longest. A part imports the rest itself,
in parallel with the others."""


@dataclass(frozen=True)
class LaunchedParts:
    """Parts that wait for their arguments, and the event loop in which they were launched."""

    services: Mapping[str, ServiceProcess]
    runner: asyncio.Runner


def select_parts(
    options: LocalOptions, *, generates: bool = False, plays_back: bool = False, launches: bool = False
) -> list[str]:
    """Return the parts that a run needs here, in the order of `PARTS`.

    Args:
        options: the user's options for this machine.
        generates: whether completions are generated.
        plays_back: whether a server of recorded completions is started here.
        launches: whether replicas are started here.
    """
    needed = {"judge", "aggregator"}
    if options.sandbox_fusion is None:
        needed.add("sandbox")
    if generates:
        needed.add("rollout" if launches else "generator")
    if plays_back:
        needed.add("recorded")
    return [name for name in PARTS if name in needed]


def part(name: str, logs: Path) -> ServiceProcess:
    """Return the part of this name, not yet launched."""
    return ServiceProcess(name, PARTS[name], [], logs / f"{name}.log", has_port=name not in JOBS)


@contextmanager
def launch_parts(names: Iterable[str], sources: Iterable[str] = ()) -> Iterator[LaunchedParts]:
    """Launch parts, and kill those that still run at the end of the context.

    The parts are forked, so that shared modules are imported once; or executed, if this process has threads. No part is
    launched if a source is missing, because the user then waits only for an error.

    Raises:
        BadInputError: no program can be judged on this system.
    """
    missing = any(not Path(source).exists() for source in sources if "://" not in source)
    names = [] if missing else [*names]
    if names:
        check_system()
    forks = _fork_parts(names)
    with asyncio.Runner() as runner:
        # The run sets the place of each log later.
        services = {name: part(name, Path()) for name in names}
        try:
            runner.run(_launch(services.values(), forks))
            yield LaunchedParts(services, runner)
        finally:
            runner.run(_kill(services.values()))


def _fork_parts(names: Iterable[str]) -> Mapping[str, Fork]:
    """Fork parts, until an import starts a thread. Each imports its own modules and waits for its arguments."""
    for name, value in SERVICE_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    forks = {}
    # Imported objects stay, and searching them for garbage takes a tenth of the imports' time.
    gc.disable()
    try:
        for name in names:
            for module in (*FIRST_SHARED, *SHARED.get(name, ())):
                import_module(module)
            if not can_fork():
                break
            gc.freeze()
            forks[name] = fork(f"evalrun-{name}", partial(_run_part, PARTS[name]))
    finally:
        gc.enable()
    return forks


def _run_part(module: str) -> int:
    """Run a part in its own process, as `python -m` would."""
    end_on_signal()
    main = import_module(f"{module}.__main__").main
    gc.enable()
    return int(main(late_arguments.complete([late_arguments.FLAG])))


async def _launch(services: Iterable[ServiceProcess], forks: Mapping[str, Fork]) -> None:
    for service in services:
        await service.launch(forks.get(service.name))


async def _kill(services: Iterable[ServiceProcess]) -> None:
    for service in services:
        await service.stop(0)
