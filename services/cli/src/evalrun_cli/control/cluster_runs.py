"""Acts on a run in a cluster by a program in its aggregator's pod, where the control listens on loopback.

The cluster decides who may run commands in pods (the right `create` on `pods/exec`), as for the download of outputs.
"""

import io
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, BinaryIO, Final

from google.protobuf.json_format import Parse, ParseError
from rich.console import Console

from evalrun_aggregator.control.acts import Act
from evalrun_aggregator.control.messages import refusal_once_ended
from evalrun_aggregator.control.words import render_words
from evalrun_api import names
from evalrun_api.v1alpha1 import EvalRun
from evalrun_cli.cluster.commands import find_run, ready_aggregator, run_on_cluster
from evalrun_cli.cluster.run_view import get_status, is_complete, reason_line
from evalrun_cli.control.texts import ControlledRun
from evalrun_proto.ledger.v1 import ledger_pb2
from evalrun_runtime.exits import BadInputError, ExitCode

# The package needs the extra `cluster`.
if TYPE_CHECKING:
    from evalrun_cluster.runs import ClusterRuns, RunPod

PROGRAM: Final = ("python", "-m", "evalrun_aggregator.control")
LEDGER: Final = f"{names.LEDGER_DIRECTORY}/{names.LEDGER_FILE}"

Report = Callable[[Act, ledger_pb2.ControlRunResponse, ControlledRun], ExitCode]
RunIn = Callable[["RunPod", Sequence[str], BinaryIO], Awaitable[None]]
"""Runs a command in a pod, with its stdout in a file. Raises CommandFailedError, BadInputError, UnreachableError."""


def control_in_cluster(name: str, act: Act, namespace: str | None, report: Report) -> ExitCode:
    """Act on a run of the current cluster.

    Raises:
        BadInputError: there is no such run, or it cannot take the act.
    """

    async def work(runs: "ClusterRuns", console: Console) -> ExitCode:
        del console
        run = await find_run(runs, name)
        response = await ask_aggregator(run, await ready_aggregator(runs, run), runs.run_in, act)
        return report(act, response, make_controlled_run(run, runs.namespace))

    return run_on_cluster(namespace, work)


async def ask_aggregator(
    run: EvalRun, aggregator: "RunPod | None", run_in: RunIn, act: Act
) -> ledger_pb2.ControlRunResponse:
    """Have a run's aggregator perform an act.

    Args:
        run: the run with its status.
        aggregator: pod of the aggregator; None while it is not ready.
        run_in: runs a command in the pod.
        act: the requested act.

    Raises:
        BadInputError: the aggregator does not run, is of an earlier release, or may not be called.
        UnreachableError: the API server does not reply.
    """
    from evalrun_cluster.runs import CommandFailedError

    if aggregator is None:
        if is_complete(run):
            return ledger_pb2.ControlRunResponse(refusal=refusal_once_ended(act))
        raise BadInputError(f"the aggregator of EvalRun {run.metadata.name} does not run now: {reason_line(run)}")
    said = io.BytesIO()
    try:
        await run_in(aggregator, [*PROGRAM, LEDGER, *render_words(act)], said)
    except CommandFailedError as error:
        # Python itself exits with this code if a module is missing.
        if error.exit_code == ExitCode.FAILED:
            raise BadInputError(
                f"the aggregator of EvalRun {run.metadata.name} is of a release without evalrun ctl ({error}): to free "
                "its GPUs, set spec.suspend"
            ) from error
        raise
    try:
        return Parse(said.getvalue(), ledger_pb2.ControlRunResponse(), ignore_unknown_fields=True)
    except ParseError as error:
        raise BadInputError(
            f"the aggregator of EvalRun {run.metadata.name} answered nothing usable: {error}"
        ) from error


def make_controlled_run(run: EvalRun, namespace: str) -> ControlledRun:
    """Return a run of a cluster as the command's texts need it."""
    name = run.metadata.name
    shown = f"{names.EVAL_RUN_PREFIX}{name}"
    fetched = f"evalrun results {name} -n {namespace} --output DIR"
    if not get_status(run).output_url:
        return ControlledRun(shown, f"evalrun status {name} -n {namespace} says what became of it")
    return ControlledRun(
        shown,
        f"{fetched} brings its answers, and evalrun judge --problems FILE --responses DIR/results.jsonl judges them "
        "again",
    )
