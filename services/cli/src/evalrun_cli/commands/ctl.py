"""The command `ctl`."""

import click

from evalrun_cli.commands.group import NAMESPACE, evalrun
from evalrun_runtime.exits import ExitCode


@evalrun.command()
@click.argument("run", metavar="RUN")
@click.argument("words", metavar="ACT", nargs=-1, required=True)
@click.option("--keep", is_flag=True, help="With stop: keep what there is, marked partial.")
@click.option("--json", "as_json", is_flag=True, help="Print what became of it as JSON.")
@NAMESPACE
def ctl(run: str, words: tuple[str, ...], namespace: str | None, *, keep: bool, as_json: bool) -> ExitCode:
    """Act on RUN while it goes on: a directory on this machine, or er/NAME in a cluster.

    \b
    pause                what is in flight ends, nothing new is generated or judged
    resume               goes on after a pause
    requeue-not-judged   judges the answers again that could not be judged
    set concurrency=N    at most N requests in flight; concurrency=default: as many as the endpoints take
    stop --keep          ends now with what there is; on this machine `evalrun resume` does the rest

    Each act is kept in the run's record, and does nothing the second time. In a cluster it needs the right to create
    pods/exec.

    \b
    evalrun ctl outputs/night pause
    evalrun ctl er/night set concurrency=16
    """
    from evalrun_aggregator.control.words import KEEP
    from evalrun_cli.control.commands import control_run

    return control_run(run, [*words, *([KEEP] if keep else [])], namespace=namespace, as_json=as_json)
