"""`evalrun plan`: reads the spec, its problems and an earlier run, and prints the resources that the run will need."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import click

from evalrun_aggregator.start.datasets import load_datasets
from evalrun_api.manifest import load_manifests
from evalrun_api.v1alpha1 import EvalRun, EvalRunSpec
from evalrun_cli.run_plan.estimate import Capacity, Estimate, estimate
from evalrun_cli.run_plan.pods import PodGroup, count_slots, plan_pods
from evalrun_cli.run_plan.rates import Rates, measure_rates
from evalrun_operator.settings import OperatorSettings
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.exits import BadInputError, ExitCode


@dataclass(frozen=True, slots=True)
class Count:
    """Completions of a dataset that a run generates."""

    dataset: str
    answers: int | None
    """None if unknown."""
    why_unknown: str = ""


def print_plan(file: Path, *, like: str | None, local: bool) -> ExitCode:
    """Print the plan of each EvalRun of a file. Raises BadInputError."""
    runs = load_manifests(file, place="machine" if local else "cluster")
    earlier = None if like is None else StoredRun.open(like)
    rates = None if earlier is None else read_rates(earlier)
    sizes = {} if earlier is None else read_sizes(earlier)
    for run in runs:
        for line in plan_lines(run, count_answers(run.spec, file.parent, sizes), rates, like or "", local=local):
            click.echo(line)
    return ExitCode.SUCCEEDED


def plan_lines(run: EvalRun, counts: Sequence[Count], rates: Rates | None, like: str, *, local: bool) -> Iterator[str]:
    """Yield the plan of a run. Pure."""
    # Defaults of the code: the chart's values can differ, and only the cluster's operator knows them.
    settings = OperatorSettings.model_validate({"host": "127.0.0.1"})
    yield f"{run.metadata.name}:"
    groups = [] if local else plan_pods(run, settings)
    yield from _pod_lines(groups)
    if run.spec.own_judge is None:
        yield f"  judged by the shared judge {run.spec.judge_ref}, whose pods are not counted"
    known = {each.dataset: each.answers for each in counts if each.answers is not None}
    parts = [f"{each.dataset} {'unknown' if each.answers is None else f'{each.answers:,}'}" for each in counts]
    yield f"  answers: {', '.join(parts)}"
    for each in counts:
        if each.answers is None:
            yield f"  unknown: the answers of {each.dataset}: {each.why_unknown}"
    if rates is None:
        yield "  unknown: wall time and GPU hours: name an earlier run of this model with --like RUN"
    elif len(known) == len(counts):
        yield from _time_lines(known, rates, like, _capacity(run, settings, local=local))
    else:
        yield "  unknown: wall time and GPU hours, since not all answers can be counted"


def _capacity(run: EvalRun, settings: OperatorSettings, *, local: bool) -> Capacity:
    slots = None if local else count_slots(run, settings)
    most = None if slots is None else slots[1]
    rollout = run.spec.rollout
    if rollout is None:
        return Capacity(len(run.spec.endpoints or [1]), most, 0)
    return Capacity(
        rollout.initial_replicas, most, rollout.worker_pods(rollout.initial_replicas) * rollout.gpus_per_node
    )


def _pod_lines(groups: Sequence[PodGroup]) -> Iterator[str]:
    if not groups:
        return
    yield "  part         pods      CPUs  memory MiB  GPUs   (requests of each pod)"
    for each in groups:
        pods = str(each.min_pods) if each.min_pods == each.max_pods else f"{each.min_pods} to {each.max_pods}"
        yield f"  {each.part:<12} {pods:<8} {_plain(each.cpus):>5} {each.memory_mib:>11,} {each.gpus:>5}"
    least, most = [each.min_pods for each in groups], [each.max_pods for each in groups]
    for words, counts in (("at least", least), ("at most", most)):
        counted = list(zip(groups, counts, strict=True))
        cpus = sum((each.cpus * count for each, count in counted), Decimal(0))
        memory = sum(each.memory_mib * count for each, count in counted)
        gpus = sum(each.gpus * count for each, count in counted)
        yield f"  {words}: {sum(counts)} pods, {_plain(cpus)} CPUs, {memory / 1024:.1f} GiB, {gpus} GPUs"


def _time_lines(answers: Mapping[str, int], rates: Rates, like: str, capacity: Capacity) -> Iterator[str]:
    found: Estimate = estimate(answers, rates, capacity)
    decides = "judging" if found.judging_seconds > found.generating_seconds else "generating"
    yield f"  by the rates of {like} ({rates.answers:,} answers), if its model, servers and machines are alike:"
    yield (
        f"  start and end {found.start_seconds:.0f} s, generating {found.generating_seconds:.0f} s beside judging "
        f"{found.judging_seconds:.0f} s"
    )
    yield f"  wall time: {found.wall_seconds:.0f} s ({decides} decides it); GPU hours: {found.gpu_hours:.2f}"
    for name in answers:
        if name not in rates.datasets:
            yield f"  {name}: {like} did not have it: taken to be like the mean of its datasets"
    if rates.slots is None:
        yield "  unknown: the slots of that run's sandboxes: judging is taken to have as many again"


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"


def count_answers(spec: EvalRunSpec, base_dir: Path, sizes: Mapping[str, int]) -> list[Count]:
    """Return the completions of each dataset that a run generates. Reads the problems.

    Args:
        spec: spec of the run.
        base_dir: base of relative sources.
        sizes: problems of an earlier run by dataset, for sources that can be read only in a cluster.

    Raises:
        BadInputError: a source cannot be used.
    """
    protocol, counts = spec.protocol, list[Count]()
    passes = protocol.answers_per_problem * (1 + protocol.noise_floor_repeats)
    for dataset in spec.datasets:
        if protocol.budget is not None:
            counts.append(Count(dataset.name, None, "EVAL@budget draws until its tokens are spent"))
        elif protocol.turns is not None:
            counts.append(Count(dataset.name, None, "EVAL@turns asks again as often as answers fail"))
        elif dataset.source.startswith("pvc://"):
            size = sizes.get(dataset.name)
            problems = None if size is None else min(size, dataset.max_problems or size)
            why = "a volume can be read only in its cluster, and no --like RUN has that dataset"
            counts.append(Count(dataset.name, None if problems is None else problems * passes, why))
        else:
            only = spec.model_copy(update={"datasets": [dataset], "gates": []})
            (loaded,) = load_datasets(only, base_dir, {})
            counts.append(Count(dataset.name, len(loaded.problems) * passes))
    return counts


def read_sizes(stored: StoredRun) -> dict[str, int]:
    """Return the problems of a finished run, by dataset."""
    sizes = {}
    datasets = stored.run_info.get("datasets")
    for name, said in datasets.items() if isinstance(datasets, dict) else ():
        problems = said.get("problems") if isinstance(said, dict) else None
        if isinstance(problems, int):
            sizes[name] = problems
    return sizes


def read_rates(stored: StoredRun) -> Rates:
    """Return the rates of a finished run. Raises BadInputError."""
    info = stored.run_info
    judges, replicas = info.get("judges"), info.get("replicas")
    described = judges.values() if isinstance(judges, dict) else ()
    slots = [said.get("slots") for said in described if isinstance(said, dict)]
    rates = measure_rates(
        stored.results(),
        elapsed=_seconds(info.get("ended_at")) - _seconds(info.get("started_at")),
        servers=len(replicas) if isinstance(replicas, list) else 1,
        slots=max((each for each in slots if isinstance(each, int) and each > 0), default=None),
    )
    if rates is None:
        raise BadInputError(
            f"{stored.place}: its results have no times, since its answers were made elsewhere: name another run"
        )
    return rates


def _seconds(written: object) -> float:
    try:
        return datetime.fromisoformat(str(written)).timestamp()
    except ValueError:
        return 0.0
