"""The parts of a run on one machine, and their launch before the command has imported what it needs itself."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from evalrun_cli.local.options import LocalOptions
from evalrun_cli.local.processes import ServiceProcess

PARTS = {
    "recorded": "evalrun_generator.recorded",
    "sandbox": "evalrun_sandbox",
    "judge": "evalrun_judge",
    "aggregator": "evalrun_aggregator",
    "generator": "evalrun_generator",
}
"""The parts of a run and their modules: each comes after those that it calls, and is ended before them."""


@dataclass(frozen=True)
class LaunchedParts:
    """Parts that wait for their arguments, and the event loop in which they were launched."""

    services: Mapping[str, ServiceProcess]
    runner: asyncio.Runner


def needed_parts(options: LocalOptions, *, generates: bool = False, plays_back: bool = False) -> list[str]:
    """Return the parts that a run needs here, in the order of `PARTS`.

    Args:
        options: what the user says about this machine.
        generates: completions are generated.
        plays_back: some of them by a server of recorded completions that is started here.
    """
    needed = {"judge", "aggregator"}
    if options.sandbox_fusion is None:
        needed.add("sandbox")
    if generates:
        needed.add("generator")
    if plays_back:
        needed.add("recorded")
    return [name for name in PARTS if name in needed]


def part(name: str, logs: Path) -> ServiceProcess:
    """Return the part of this name, not yet launched."""
    return ServiceProcess(name, PARTS[name], [], logs / f"{name}.log", has_port=name != "generator")


@contextmanager
def launched_early(names: Iterable[str], sources: Iterable[str] = ()) -> Iterator[LaunchedParts]:
    """Launch parts, and kill those that still run at the end of the context.

    None is launched if a source is missing: there, the user waits for an error and not for the parts.
    """
    missing = any(not Path(source).exists() for source in sources if "://" not in source)
    names = [] if missing else names
    with asyncio.Runner() as runner:
        services = {name: part(name, Path()) for name in names}  # a run moves their logs into its folder
        try:
            runner.run(_launch(services.values()))
            yield LaunchedParts(services, runner)
        finally:
            runner.run(_kill(services.values()))


async def _launch(services: Iterable[ServiceProcess]) -> None:
    for service in services:
        await service.launch()


async def _kill(services: Iterable[ServiceProcess]) -> None:
    for service in services:
        await service.stop(0)
