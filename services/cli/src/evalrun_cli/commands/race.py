"""The command `race`."""

from pathlib import Path
from typing import Literal

import click

from evalrun_cli.commands.group import EXIT_CODES, LocalDirectory, add_gpu_flags, add_judging_flags, evalrun
from evalrun_cli.gpu_host.options import GpuOptions
from evalrun_cli.local.options import LocalOptions
from evalrun_runtime.exits import ExitCode


@evalrun.command(epilog=EXIT_CODES)
@click.argument("runs", metavar="A B [C ...]", nargs=-1, required=True)
@click.option(
    "--checkpoints",
    metavar="PATTERN",
    help="Race the checkpoints in the directories of this pattern by the EvalRun of the only FILE, on replicas here.",
)
@click.option(
    "--output",
    type=LocalDirectory(),
    help="Of files: directory for the runs and race.json; the same command goes on there. Default: "
    "outputs/<run>_<time>.",
)
@click.option("--dataset", metavar="NAME", help="Dataset to race on. Default: the one that all runs have.")
@click.option(
    "--population",
    type=click.Choice(["benchmark", "similar"]),
    default="benchmark",
    show_default=True,
    help="What the best run is best at: these very problems, or those that they stand for.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the race as JSON.")
@add_judging_flags
@add_gpu_flags
def race(
    runs: tuple[str, ...],
    checkpoints: str | None,
    output: Path | None,
    dataset: str | None,
    population: Literal["benchmark", "similar"],
    options: LocalOptions,
    gpu_options: GpuOptions,
    *,
    as_json: bool,
) -> ExitCode:
    """Find the best of several runs, and say which ones cannot be told apart.

    \b
    Of finished runs:          evalrun race outputs/a outputs/b outputs/c
    Of runs to be done here:   evalrun race a.yaml b.yaml --output race
    Of checkpoints, on GPUs:   evalrun race run.yaml --checkpoints 'checkpoints/*' --gpus all

    Finished runs are directories of outputs or fsspec URLs. A file is an EvalRun of one dataset: the runs draw its
    problems in one order, some at a time, and one that is dropped gets no more.

    Problems are drawn in the order of the first run's seed, and a run is dropped as soon as it is clearly behind. A
    best run is dropped with probability 0.05 at most, whatever the number of runs. Answers that were not judged count
    in the least favourable way.

    Ends with 0 if one run is best, 5 if several may be.
    """
    files = [Path(each) for each in runs if each.endswith((".yaml", ".yml", ".json")) and Path(each).is_file()]
    if checkpoints is None and not files:
        from evalrun_cli.comparisons.race_view import print_race

        here = {"--output": output, **options.flags, **gpu_options.flags}
        if given := [flag for flag, value in here.items() if value]:
            raise click.UsageError(f"{', '.join(given)}: only for files of EvalRuns: these runs are finished")
        return print_race(runs, dataset=dataset, population=population, as_json=as_json)
    if len(files) < len(runs):
        other = next(each for each in runs if Path(each) not in files)
        if other.endswith((".yaml", ".yml", ".json")):
            raise click.UsageError(f"{other}: no such file")
        raise click.UsageError(f"{other}: name files of EvalRuns, or directories of finished runs, not both")
    from evalrun_cli.local.live_race import RaceRules, race_checkpoints, race_files

    rules = RaceRules(dataset, population, as_json=as_json)
    if checkpoints is None:
        if given := [flag for flag, value in gpu_options.flags.items() if value]:
            raise click.UsageError(f"{', '.join(given)}: only with --checkpoints: add it, or leave them away")
        return race_files(files, rules, output=output, options=options)
    if len(files) > 1:
        raise click.UsageError("--checkpoints: name one file: its model is each checkpoint in turn")
    return race_checkpoints(checkpoints, files[0], rules, output=output, options=options, gpu_options=gpu_options)
