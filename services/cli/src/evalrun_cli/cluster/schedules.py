"""Operations on the EvalSchedules of a cluster: request a start, and find the results."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console

from evalrun_cli.cluster.commands import run_on_cluster
from evalrun_runtime.exits import BadInputError, ExitCode

# The package needs the extra `cluster`.
if TYPE_CHECKING:
    from evalrun_cluster.runs import ClusterRuns


def start_now(name: str, *, namespace: str | None) -> ExitCode:
    """Request a start at once, at any time, even while the schedule is suspended.

    Raises:
        BadInputError: there is no such schedule, or the cluster refuses.
    """
    value = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    async def work(runs: "ClusterRuns", console: Console) -> ExitCode:
        if not await runs.trigger(name, value):
            raise BadInputError(f"there is no EvalSchedule {name} in namespace {runs.namespace}")
        console.print(f"evalschedule/{name}: asked for a start; see kubectl describe evalschedule {name}")
        return ExitCode.SUCCEEDED

    return run_on_cluster(namespace, work)


def output_place(name: str, *, namespace: str | None) -> str:
    """Return the URL below which the runs of a schedule write.

    Raises:
        BadInputError: there is no such schedule, or its results lie on a volume.
    """
    places: list[str] = []

    async def work(runs: "ClusterRuns", console: Console) -> ExitCode:
        del console
        schedule = await runs.schedule(name)
        if schedule is None:
            raise BadInputError(
                f"{name}: neither a directory nor an EvalSchedule of namespace {runs.namespace}: name one of them"
            )
        url = schedule.spec.template.output.url
        if url is None or url.startswith("pvc://"):
            raise BadInputError(
                f"the results of EvalSchedule {name} are on a volume, which this machine cannot read: copy them "
                "(evalrun results RUN --output DIR), then name that directory"
            )
        places.append(url)
        return ExitCode.SUCCEEDED

    run_on_cluster(namespace, work)
    return places[0]
