"""The command `ctl`."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from evalrun_aggregator.control.acts import Act
from evalrun_aggregator.control.words import act_of_words
from evalrun_api.names import EVAL_RUN_PREFIX
from evalrun_cli.control.local_runs import control_local, local_run
from evalrun_cli.control.texts import ControlledRun, outcome_json, outcome_text, refusal_text
from evalrun_proto.ledger.v1 import ledger_pb2
from evalrun_runtime.exits import BadInputError, ExitCode


def control_run(place: str, words: Sequence[str], *, namespace: str | None, as_json: bool) -> ExitCode:
    """Act on a run, and print the result.

    Args:
        place: directory of a run on this machine, or er/NAME.
        words: words of the act.
        namespace: namespace of a run in a cluster; None: the context's own.
        as_json: print JSON for programs.

    Raises:
        BadInputError: there is no such act or run, or the run refuses it.
    """
    act = act_of_words(words)
    if place.startswith(EVAL_RUN_PREFIX):
        from evalrun_cli.control.cluster_runs import control_in_cluster

        return control_in_cluster(place.removeprefix(EVAL_RUN_PREFIX), act, namespace, partial(report, as_json=as_json))
    if namespace is not None:
        raise BadInputError(f"--namespace: {place} is on this machine: write er/NAME for a run in a cluster")
    directory = Path(place)
    run = local_run(directory)
    response = control_local(directory, act)
    return report(act, response, local_run(directory) if response.refusal else run, as_json=as_json)


def report(act: Act, response: ledger_pb2.ControlRunResponse, run: ControlledRun, *, as_json: bool) -> ExitCode:
    """Print the result of an act. Raises BadInputError if the run refused it."""
    if (refused := refusal_text(response, run)) is not None:
        raise BadInputError(refused)
    click.echo(json.dumps(outcome_json(act, response, run)) if as_json else outcome_text(act, response, run))
    return ExitCode.SUCCEEDED
