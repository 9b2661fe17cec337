"""`evalrun serve reward` on one machine: runs sandbox, judge and reward service as child processes until a signal."""

import asyncio
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from evalrun_cli.local.options import LocalOptions
from evalrun_cli.local.processes import Restarts, ServiceFailedError, ServiceProcess, keep_running
from evalrun_reward.sessions.sqlite_store import SCHEMA_VERSION
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.ready_line import ready_line

logger = logging.getLogger(__name__)

STOP_SECONDS = 20.0
LIVE_FLAG = "--live-sandbox"
LIVE_VARIABLE = "EVALRUN_REWARD_LIVE_SANDBOX"
OWN_SANDBOX = "own"
SHARE_FLAGS = {"--share": "EVALRUN_REWARD_SHARE", "--priority": "EVALRUN_REWARD_PRIORITY"}
"""Flags of the service and of the judge, with the variables of the service."""
MAX_INTERPRETERS = 1000
"""Maximum number of open interpreters in the sandbox that is started here; an idle interpreter takes some 3 MiB."""
STORE_NAME = f"sessions-{SCHEMA_VERSION}.sqlite3"
"""File of the default session store; a version with another schema begins another file."""


def names_a_judge(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether the settings name a judge, or may do so in a file: then none is started."""
    flags = {argument.partition("=")[0] for argument in arguments}
    return bool(flags & {"--judge", "--config"}) or "EVALRUN_REWARD_JUDGE" in environment


def add_default_store(arguments: Sequence[str], environment: Mapping[str, str], home: Path) -> list[str]:
    """Return the arguments with a session store: a file in the user's state directory if none is named.

    Raises:
        BadInputError: the directory cannot be created.
    """
    named = {argument.partition("=")[0] for argument in arguments}
    if named & {"--session-store", "--config", "--settings"} or "EVALRUN_REWARD_SESSION_STORE" in environment:
        return list(arguments)
    directory = Path(environment.get("XDG_STATE_HOME") or home / ".local" / "state") / "evalrun"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(
            f"--session-store: its default directory {directory} cannot be created ({error.strerror}): name a file in "
            "another directory"
        ) from error
    return [*arguments, "--session-store", str(directory / STORE_NAME)]


def take_own_sandbox(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[list[str], bool]:
    """Return the arguments without `--live-sandbox own`, and whether they or the variable contained it."""
    kept, addresses = split_flag(arguments, LIVE_FLAG)
    others = [address for address in addresses if address != OWN_SANDBOX]
    found = len(others) < len(addresses) or environment.get(LIVE_VARIABLE) == OWN_SANDBOX
    return [*kept, *(part for address in others for part in (LIVE_FLAG, address))], found


def share_flags(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the service's shares and priorities as flags: the judge shares its slots as the service does."""
    flags = []
    for flag, variable in SHARE_FLAGS.items():
        said = [environment[variable]] if environment.get(variable) else []
        flags += [part for share in split_flag(arguments, flag)[1] or said for part in (flag, share)]
    return flags


def split_flag(arguments: Sequence[str], flag: str) -> tuple[list[str], list[str]]:
    """Return the arguments without a flag, and the flag's values, written as `FLAG VALUE` or `FLAG=VALUE`."""
    kept: list[str] = []
    values: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name == flag:
            values.append(value if equals else next(rest, ""))
        else:
            kept.append(argument)
    return kept, values


def serve_reward(arguments: Sequence[str], options: LocalOptions) -> ExitCode:
    """Serve with a sandbox and a judge of its own until SIGTERM or Ctrl-C.

    Args:
        arguments: arguments of the reward service.
        options: the user's options for this machine.

    Raises:
        BadInputError: a part refuses its input.
    """
    options.check({"datasets": []})
    logs = Path(tempfile.mkdtemp(prefix="evalrun-reward-"))
    try:
        code = asyncio.run(_serve(logs, arguments, options))
    except ServiceFailedError as error:
        # The error names a log, which therefore stays.
        logger.error("%s", error)
        return ExitCode.FAILED
    except BadInputError:
        shutil.rmtree(logs)
        raise
    shutil.rmtree(logs)
    return code


async def _serve(logs: Path, arguments: Sequence[str], options: LocalOptions) -> ExitCode:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    services: list[ServiceProcess] = []
    work = {asyncio.create_task(stop.wait()), asyncio.create_task(_run(logs, arguments, options, services))}
    try:
        done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        return ExitCode.SUCCEEDED
    except* (BadInputError, ServiceFailedError) as errors:
        raise errors.exceptions[0] from None
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        for service in reversed(services):
            await service.stop(STOP_SECONDS)


async def _run(logs: Path, arguments: Sequence[str], options: LocalOptions, services: list[ServiceProcess]) -> None:
    """Start the parts, announce the address, and keep the parts running. `services` gets every part that was begun."""

    async def start(name: str, flags: Sequence[str], port: str = "") -> str:
        service = ServiceProcess(
            name, f"evalrun_{name}", flags, logs / f"{name}.log", address=f":{port}" if port else ""
        )
        services.append(service)
        await service.start()
        return service.address

    arguments, own_interpreters = take_own_sandbox(arguments, os.environ)
    if own_interpreters and options.sandbox_fusion is not None:
        raise BadInputError(
            f"{LIVE_FLAG} {OWN_SANDBOX}: a SandboxFusion server has no live sessions: leave --sandbox-fusion away"
        )
    live: list[str] = []
    sandbox = ["--backend", "SandboxFusion", "--sandbox", options.sandbox_fusion or ""]
    if options.sandbox_fusion is not None:
        # The import is made here, because it loads aiohttp.
        from evalrun_cli.local.fusion_server import check_fusion_server

        await check_fusion_server(options.sandbox_fusion)
    else:
        flags = [*options.sandbox_flags, *(["--max-sessions", str(MAX_INTERPRETERS)] if own_interpreters else [])]
        address = await start("sandbox", flags)
        sandbox = ["--sandbox", address, *options.package_flags]
        live = [LIVE_FLAG, address] if own_interpreters else []
    judge = await start("judge", [*sandbox, *options.containment_flags, *share_flags(arguments, os.environ)])
    own, port = _split_port(arguments)
    address = await start("reward", [*own, "--judge", judge, *live], port)
    click.echo(ready_line("reward", address))
    async with asyncio.TaskGroup() as group:
        for service in services:
            group.create_task(keep_running(service, Restarts()))


def _split_port(arguments: Sequence[str]) -> tuple[list[str], str]:
    """Return the flags without `--port`, and its value, because `ServiceProcess` names the port at each start."""
    kept, ports = split_flag(arguments, "--port")
    return kept, [os.environ.get("EVALRUN_REWARD_PORT", ""), *ports][-1]
