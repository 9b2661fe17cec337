"""`evalrun history` and `evalrun schedule`: the checkpoints of a training over time."""

from collections.abc import Sequence
from pathlib import Path

import click

from evalrun_cli.commands.group import EXISTING_FILE, EXIT_CODES, NAMESPACE, add_format_flags, evalrun
from evalrun_registry.metrics import HEADLINE
from evalrun_runtime.exits import ExitCode


@evalrun.command(epilog=EXIT_CODES)
@click.argument("places", metavar="NAME|URL...", nargs=-1, required=True)
@click.option("--metric", default=HEADLINE.name, show_default=True, help="A metric of summary.json.")
@click.option("--dataset", "datasets", multiple=True, help="Only this dataset; may be repeated. Default: all.")
@click.option(
    "--trust-config",
    type=EXISTING_FILE,
    help="ClientTrustConfig of a private instance of Sigstore, which says who an identity is that signed a run.",
)
@NAMESPACE
@add_format_flags
def history(
    places: tuple[str, ...],
    metric: str,
    datasets: Sequence[str],
    trust_config: Path | None,
    namespace: str | None,
    view: str,
    output: Path | None,
) -> ExitCode:
    """Show a metric over the steps of a training, with its intervals.

    Each argument is a run's outputs, a directory or fsspec URL that holds the outputs of many runs, or the name of an
    EvalSchedule of the cluster, whose output URL is read then. A run's step is its spec.lineage.step, else the number
    in its model's directory.

    \b
    Examples:
      evalrun history outputs/
      evalrun history s3://evaluations/grpo --format html --output curve.html
      evalrun history nightly -n training --dataset codecontests_valid
    """
    from evalrun_cli.comparisons.history import history as show_history
    from evalrun_cli.comparisons.history import is_name

    named = [place for place in places if is_name(place)]
    found = list(places)
    if named:
        from evalrun_cli.cluster.schedules import output_place

        found = [output_place(place, namespace=namespace) if place in named else place for place in places]
    return show_history(
        found,
        metric=metric,
        datasets=datasets,
        view=view,
        output=output,
        schedules=named,
        trust_config=trust_config,
    )


@evalrun.group()
def schedule() -> None:
    """Work with the EvalSchedules of a cluster."""


@schedule.command("run", epilog=EXIT_CODES)
@click.argument("name")
@NAMESPACE
def run_now(name: str, namespace: str | None) -> ExitCode:
    """Ask EvalSchedule NAME for a start at once, as its annotation evalrun.dev/trigger does.

    It starts also while the schedule is suspended, and beside runs that are active. No checkpoint is evaluated twice.
    """
    from evalrun_cli.cluster.schedules import start_now

    return start_now(name, namespace=namespace)
