"""The commands for EvalRuns in a cluster: `run` without --local, `status`, `logs`, `results`."""

import asyncio
import json
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
from rich.console import Console

from evalrun_api import names
from evalrun_api.manifest import load_documents, load_manifest
from evalrun_api.v1alpha1 import KIND, EvalRun
from evalrun_cli.cluster.run_display import RunDisplay, make_run_display
from evalrun_cli.cluster.run_view import exit_code, get_status, is_complete, reason_line, status_tables
from evalrun_cli.results_table import results_tables
from evalrun_cli.run_gate import gate_line
from evalrun_cli.terminal import open_console
from evalrun_cluster.errors import UnreachableError
from evalrun_runtime.distribution import describe_install
from evalrun_runtime.exits import BadInputError, ExitCode

# The package needs the extra `cluster`.
if TYPE_CHECKING:
    from evalrun_cluster.runs import ClusterRuns, RunPod

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
"""A run's status changes at most once per reconciliation of the operator, by default every 5 s."""
PARTS = (names.AGGREGATOR, names.JUDGE, names.SANDBOX, names.GENERATOR, names.RAY)
CLUSTER_PACKAGES = {"lightkube", "httpx2"}

Work = Callable[["ClusterRuns", Console], Awaitable[ExitCode]]


def run_in_cluster(file: Path, *, namespace: str | None, follow: bool = True, view: bool = False) -> ExitCode:
    """Apply a file to the current cluster, and follow its EvalRun to its end; with `view` its page is served meanwhile.

    Raises:
        BadInputError: the file is not valid, or the cluster refuses it.
    """
    manifest = load_manifest(file, place="cluster")
    named = manifest.metadata.namespace
    if namespace is not None and named is not None and namespace != named:
        raise BadInputError(f"{file}: metadata.namespace is {named}, but --namespace is {namespace}: write one of them")
    documents = sorted(load_documents(file), key=lambda document: document.get("kind") == KIND)

    async def work(runs: "ClusterRuns", console: Console) -> ExitCode:
        name = manifest.metadata.name
        before = await runs.get(name)
        if before is not None and is_complete(before):
            _say(console, f"EvalRun {name} has ended already: delete it, or give the file another metadata.name")
        for document in documents:
            document.pop("status", None)
            _say(console, f"{await runs.apply(document)} applied in namespace {runs.namespace}")
        if not follow:
            return ExitCode.SUCCEEDED
        if not view:
            return await _follow(runs, console, name)
        # A command without a page needs neither aiohttp nor pyarrow.
        from evalrun_cli.viewer.commands import evalrun_page

        async with evalrun_page(runs, name) as address:
            click.echo(f"page: {address}", err=True)
            code = await _follow(runs, console, name)
        click.echo(f"the page has ended; open it again with: evalrun view er/{name} -n {runs.namespace}", err=True)
        return code

    return run_on_cluster(namespace or named, work, otherwise=", or add --local")


def show_status(name: str, *, namespace: str | None, follow: bool) -> ExitCode:
    """Show a run, and follow it to its end with `follow`. Raises BadInputError if it does not exist."""

    async def work(runs: "ClusterRuns", console: Console) -> ExitCode:
        if follow:
            return await _follow(runs, console, name)
        run = await find_run(runs, name)
        for part in status_tables(run, datetime.now(UTC)):
            console.print(part)
        return exit_code(run) if is_complete(run) else ExitCode.SUCCEEDED

    return run_on_cluster(namespace, work)


def show_logs(name: str, *, namespace: str | None, parts: Sequence[str], follow: bool, tail: int | None) -> ExitCode:
    """Show the logs of a run's pods. Raises BadInputError if the run has none."""

    async def work(runs: "ClusterRuns", console: Console) -> ExitCode:
        run = await find_run(runs, name)
        wanted = parts or PARTS
        pods = sorted(
            (pod for pod in await runs.pods(run) if pod.part in wanted), key=lambda pod: wanted.index(pod.part)
        )
        if not pods:
            raise BadInputError(f"EvalRun {name} has no pods of {', '.join(wanted)} now: {reason_line(run)}")
        reads = [
            partial(_show_log, runs, console, pod, container, follow=follow, tail=tail)
            for pod in pods
            for container in pod.containers
        ]
        if follow:
            had = await asyncio.gather(*(read() for read in reads))
        else:
            had = [await read() for read in reads]
        return ExitCode.SUCCEEDED if any(had) else ExitCode.FAILED

    return run_on_cluster(namespace, work)


def show_results(name: str, *, namespace: str | None, output: Path | None) -> ExitCode:
    """Show the results of a run that has ended. With `output`, download all of its files there.

    Raises:
        BadInputError: there is no such run, it has no results, or they cannot be reached from here.
    """
    if output is not None and output.exists() and any(output.iterdir()):
        raise BadInputError(f"--output {output}: the directory is not empty: name another one")

    async def work(runs: "ClusterRuns", console: Console) -> ExitCode:
        run = await find_run(runs, name)
        status = get_status(run)
        if not status.output_url:
            raise BadInputError(f"EvalRun {name} has no results: it is {status.phase or 'Pending'}: {reason_line(run)}")
        with TemporaryDirectory(prefix="evalrun-results-") as scratch:
            directory = Path(scratch) / "outputs" if output is None else output
            directory.mkdir(parents=True, exist_ok=True)
            only = [] if output is not None else ["summary.json"]
            place = await bring_to(runs, run, directory, only, partial(_say, console))
            summary = json.loads((directory / "summary.json").read_text())
        for table in results_tables(summary):
            console.print(table)
        if (decided := gate_line(summary)) is not None:
            _say(console, decided)
        _say(console, f"results: {output or status.output_url} (from {place})")
        return exit_code(run)

    return run_on_cluster(namespace, work)


async def bring_to(
    runs: "ClusterRuns", run: EvalRun, directory: Path, only: Sequence[str], say: Callable[[str], object]
) -> str:
    """Copy the outputs of a run into a directory, wherever they are, and return their origin.

    Args:
        runs: runs of the run's namespace.
        run: the run with its status.
        directory: an empty directory.
        only: names of the wanted files; empty: all.
        say: called with the name of a pod that reads a volume.

    Raises:
        BadInputError: the outputs cannot be reached from here.
        UnreachableError: the connection broke.
    """
    from evalrun_cli.cluster.outputs import SendFrom, bring_outputs

    sender = await ready_aggregator(runs, run)
    send = None if sender is None else partial(runs.run_in, sender)

    @asynccontextmanager
    async def reader(claim: str) -> AsyncIterator[SendFrom]:
        say(f"the aggregator has gone: starting a pod that reads the volume of claim {claim}")
        async with runs.reader(run, claim) as pod:
            yield partial(runs.run_in, pod)

    return await bring_outputs(run, directory, only, send, reader)


async def ready_aggregator(runs: "ClusterRuns", run: EvalRun) -> "RunPod | None":
    """Return the pod of a run's aggregator; None while it is not ready. Raises as `ClusterRuns.pods` does."""
    return next((pod for pod in await runs.pods(run) if pod.part == names.AGGREGATOR and pod.ready), None)


def run_on_cluster(namespace: str | None, work: Work, *, otherwise: str = "") -> ExitCode:
    """Connect to the current cluster, work there, and disconnect.

    `otherwise` is advice for a machine without the client.

    Raises:
        BadInputError: no cluster is configured, or the client's packages are missing.
    """
    try:
        from evalrun_cluster.runs import connect
    except ModuleNotFoundError as error:
        if error.name not in CLUSTER_PACKAGES:
            raise
        raise BadInputError(
            f"talking to a cluster needs the package {error.name}: {describe_install('cluster')}{otherwise}"
        ) from error

    async def run_work() -> ExitCode:
        runs = connect(namespace)
        try:
            return await work(runs, open_console())
        finally:
            await runs.close()

    try:
        return asyncio.run(run_work())
    except UnreachableError as error:
        logger.error("the cluster does not answer: %s", error)
        return ExitCode.FAILED


async def find_run(runs: "ClusterRuns", name: str) -> EvalRun:
    """Return an EvalRun. Raises BadInputError if there is none, and as `ClusterRuns.get` does."""
    run = await runs.get(name)
    if run is None:
        raise BadInputError(f"there is no EvalRun {name} in namespace {runs.namespace}: name it, or its -n NAMESPACE")
    return run


async def _follow(runs: "ClusterRuns", console: Console, name: str) -> ExitCode:
    """Follow a run to its end; Ctrl-C ends the following, not the run."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    display = make_run_display(console)
    try:
        run = await _show_until_complete(runs, name, display, stopped)
    finally:
        display.close()
    if run is None:
        again = f"evalrun status {name} -n {runs.namespace} --follow"
        _say(console, f"the run goes on in the cluster; follow it again with: {again}")
        return ExitCode.STOPPED
    for part in status_tables(run, datetime.now(UTC)):
        console.print(part)
    if get_status(run).output_url:
        _say(console, f"its figures and files: evalrun results {name} -n {runs.namespace} --output DIR")
    return exit_code(run)


async def _show_until_complete(
    runs: "ClusterRuns", name: str, display: RunDisplay, stopped: asyncio.Event
) -> EvalRun | None:
    """Show the run until it has ended. Return None if it was stopped first. An absent API server is awaited."""
    uid = None
    while not stopped.is_set():
        try:
            run = await find_run(runs, name)
        except UnreachableError as error:
            logger.warning("%s; trying again", error)
        else:
            if uid not in (None, run.metadata.uid):
                raise BadInputError(f"EvalRun {name} was deleted, and another one has its name now")
            uid = run.metadata.uid
            display.update(run, datetime.now(UTC))
            if is_complete(run):
                return run
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await stopped.wait()
        except TimeoutError:
            continue
    return None


async def _show_log(
    runs: "ClusterRuns", console: Console, pod: "RunPod", container: str, *, follow: bool, tail: int | None
) -> bool:
    where = f"{pod.name}/{container}" if len(pod.containers) > 1 else pod.name
    try:
        async for line in runs.log(pod, container, follow=follow, tail=tail):
            _say(console, f"{where}: {line}")
    except (BadInputError, UnreachableError) as error:
        logger.warning("%s", error)
        return False
    return True


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
