"""The commands `run`, `status`, `logs` and `results`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from evalrun_cli.commands.group import (
    EXISTING_FILE,
    EXIT_CODES,
    NAMESPACE,
    SINCE_START,
    LocalDirectory,
    Numbers,
    add_gpu_flags,
    add_judging_flags,
    add_printing_flags,
    add_view_flag,
    evalrun,
)
from evalrun_cli.gpu_host.options import GpuOptions
from evalrun_cli.local.options import LocalOptions, Printing
from evalrun_runtime.exits import ExitCode

if TYPE_CHECKING:
    from evalrun_cli.local.quick_run import QuickRun


def parse_labels(written: Sequence[str]) -> dict[str, str]:
    """Return labels by name. Raises click.BadParameter."""
    labels = {}
    for each in written:
        key, sign, value = each.partition("=")
        if not sign or not key:
            raise click.BadParameter(f"{each!r}: write KEY=VALUE", param_hint="--label")
        labels[key] = value
    return labels


@evalrun.command(epilog=EXIT_CODES)
@click.argument("file", type=EXISTING_FILE, required=False)
@click.option("--local", is_flag=True, help="Run on this machine, without a cluster.")
@NAMESPACE
@click.option("--no-follow", is_flag=True, help="In a cluster: apply the file and return without waiting for the run.")
@click.option(
    "--output",
    type=LocalDirectory(),
    help="With --local: directory for the results. Default: outputs/<run>_<time>.",
)
@click.option(
    "--endpoint",
    "endpoints",
    multiple=True,
    metavar="URL",
    help="With --local: an OpenAI-compatible server of the model; may be repeated. `builtin:demo` serves the demo's "
    "recorded answers. Its API key is read from EVALRUN_GENERATOR_API_KEY or OPENAI_API_KEY.",
)
@click.option("--model", metavar="NAME", help="Without FILE: the model's id in the server's /v1/models.")
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    metavar="FILE|NAME",
    help="Without FILE: a problem file, or demo, humaneval, mbpp, mbpp_reg, codecontests_valid or codecontests_test; "
    "may be repeated.",
)
@click.option("--samples", type=click.IntRange(1, 1000), help="Without FILE: samples per problem. Default: 1, greedy.")
@click.option(
    "--seeds",
    type=click.IntRange(1, 20),
    help="Without FILE: draw the samples with this many seeds, for mean and deviation. Default: 1.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0.0, 2.0),
    help="Without FILE: sampling temperature. Default: 0 for one sample, 0.8 for several.",
)
@click.option(
    "--protocol",
    type=click.Choice(["EVAL@1", "EVAL@k", "EVAL@turns"]),
    help="Without FILE. EVAL@turns: up to 4 answers, each after feedback. Default: EVAL@1; for several samples EVAL@k.",
)
@click.option(
    "--k",
    metavar="NUMBER,...",
    type=Numbers(),
    help="Without FILE: the k of pass@k, e.g. 1,10. Default: 1 and the number of samples.",
)
@click.option(
    "--calculate-log-probs",
    is_flag=True,
    default=None,
    help="Without FILE: store the log-probability of every token, where the server gives them.",
)
@click.option(
    "--max-problems", type=click.IntRange(min=1), help="Without FILE: only the first problems of each dataset."
)
@click.option("--name", help="Without FILE: name of the run in report and comparisons. Default: the model's.")
@click.option("--step", type=click.IntRange(min=0), help="Without FILE: training step of the checkpoint.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Without FILE: a label; may be repeated.")
@click.option("--wandb", metavar="PROJECT", help="Without FILE: export the run to this project of Weights & Biases.")
@click.option("--tensor-parallel", type=click.IntRange(1, 64), help="Without FILE: GPUs per replica. Default: 1.")
@click.option(
    "--checkpoints",
    metavar="PATTERN",
    help="On GPUs here: a run for each directory of the pattern, e.g. 'checkpoints/global_step_*', on replicas that "
    "start once and take one checkpoint's weights after another's.",
)
# `evalrun race` passes this flag to the runs that it starts.
@click.option("--race-problems", type=click.IntRange(min=1), hidden=True)
@click.option("--resume", type=click.Path(path_type=Path), help="With --local: resume the run in this directory.")
@click.option(
    "--request-timeout",
    type=click.FloatRange(min=1.0),
    metavar="SECONDS",
    help="With --local: how long a request may take. Default: 0.2 s per token of maxNewTokens, at least 120 s; once 20 "
    "answers have come, five times the slowest if that is less. What timed out is sent again, with twice the time.",
)
@add_printing_flags
@add_view_flag
@add_judging_flags
@add_gpu_flags
def run(
    file: Path | None,
    local: bool,
    namespace: str | None,
    no_follow: bool,
    output: Path | None,
    endpoints: Sequence[str],
    model: str | None,
    datasets: Sequence[str],
    samples: int | None,
    seeds: int | None,
    temperature: float | None,
    protocol: Literal["EVAL@1", "EVAL@k", "EVAL@turns"] | None,
    k: Sequence[int] | None,
    calculate_log_probs: bool | None,
    max_problems: int | None,
    name: str | None,
    step: int | None,
    labels: Sequence[str],
    wandb: str | None,
    tensor_parallel: int | None,
    checkpoints: str | None,
    race_problems: int | None,
    resume: Path | None,
    request_timeout: float | None,
    options: LocalOptions,
    gpu_options: GpuOptions,
    printing: Printing,
) -> ExitCode:
    """Run the EvalRun of FILE and show its results.

    \b
    Without a file:  evalrun run --endpoint URL --model NAME --dataset FILE|NAME
    On GPUs here:    evalrun run --gpus all --model PATH|HUB_ID --dataset FILE|NAME

    This runs on this machine and writes an equivalent evalrun.yaml beside the results.

    Without --local, FILE is applied to the current cluster (KUBECONFIG) and its run is followed. Ctrl-C stops
    following; the run continues.

    With --local, the services run on this machine, and a spec with `rollout` starts its replicas on this machine's GPUs
    unless --endpoint names a server. Ctrl-C stops the run cleanly, and `evalrun resume DIR` continues it, also after a
    crash.
    """
    here: dict[str, object] = {"--output": output, "--endpoint": endpoints, "--resume": resume}
    here |= {
        "--request-timeout": request_timeout,
        "--checkpoints": checkpoints,
        "--race-problems": race_problems,
        "--quiet": printing.quiet,
        "--json": printing.as_json,
        **options.flags,
        **gpu_options.flags,
    }
    given = [flag for flag, value in here.items() if value]
    asked = {
        "--model": model,
        "--dataset": datasets,
        "--samples": samples,
        "--seeds": seeds,
        "--temperature": temperature,
        "--protocol": protocol,
        "--k": k,
        "--calculate-log-probs": calculate_log_probs,
        "--max-problems": max_problems,
        "--name": name,
        "--step": step,
        "--label": labels,
        "--wandb": wandb,
        "--tensor-parallel": tensor_parallel,
    }
    if no_follow and printing.view:
        raise click.UsageError("--view: the page ends with the command: remove --no-follow")
    if file is None and (namespace is not None or no_follow or resume is not None):
        raise click.UsageError("--namespace, --no-follow, --resume: these need a FILE: name one, or remove them")
    if file is not None and (wrong := [flag for flag, value in asked.items() if value or value == 0]):
        raise click.UsageError(f"{', '.join(wrong)}: {file} sets this already: remove the flags, or FILE")
    if file is not None and not local:
        from evalrun_cli.cluster.commands import run_in_cluster

        if given:
            raise click.UsageError(f"{', '.join(given)}: only for runs on this machine: add --local")
        return run_in_cluster(file, namespace=namespace, follow=not no_follow, view=printing.view)
    if namespace is not None or no_follow:
        raise click.UsageError("--namespace, --no-follow: only for runs in a cluster: remove --local")

    # The import is made late, because the services are launched first.
    def make_quick_run() -> "QuickRun":
        from evalrun_cli.local.quick_run import QuickRun

        return QuickRun(
            endpoints,
            model,
            datasets,
            samples or 1,
            temperature,
            wandb,
            name,
            protocol,
            k or (),
            max_problems,
            step,
            parse_labels(labels),
            seeds or 1,
            tensor_parallel or 1,
            bool(calculate_log_probs),
        )

    if checkpoints is not None:
        from evalrun_cli.local.checkpoint_runs import run_pattern

        also = {"--endpoint": endpoints, "--model": model, "--step": step is not None, "--resume": resume}
        also |= {"--json": printing.as_json}
        if wrong := [flag for flag, value in also.items() if value]:
            raise click.UsageError(f"{', '.join(wrong)}: not together with --checkpoints: remove one of them")
        return run_pattern(
            checkpoints,
            file,
            make_quick_run(),
            output=output,
            request_seconds=request_timeout,
            options=options,
            gpu_options=gpu_options,
            printing=printing,
        )
    from evalrun_cli.local.parts import launch_parts, select_parts

    plays_back = any(url.startswith("builtin:") for url in endpoints)
    launches = not endpoints and gpu_options.gpus is not None
    generates = bool(file or endpoints or launches)
    names = select_parts(options, generates=True, plays_back=plays_back, launches=launches) if generates else []
    # The rollout is not launched ahead, because it imports little and may end late.
    names = [name for name in names if name != "rollout"]
    # The parts are launched before the imports that take longest.
    with launch_parts(names, [] if resume is None else [str(resume)]) as launched:
        from evalrun_cli.local.run_session import session_for
        from evalrun_cli.local.runs import run_file, run_quickly

        session = session_for(printing, SINCE_START, launched)
        if file is None:
            return run_quickly(
                make_quick_run(),
                output=output,
                request_seconds=request_timeout,
                options=options,
                gpu_options=gpu_options,
                session=session,
            ).code
        ended = run_file(
            file,
            output=output,
            endpoints=endpoints,
            resume=resume,
            request_seconds=request_timeout,
            options=options,
            gpu_options=gpu_options,
            session=session,
            race_problems=race_problems,
        )
        return ended.code


@evalrun.command(epilog=EXIT_CODES)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--endpoint", "endpoints", multiple=True, metavar="URL", help="Server of the model, if it serves elsewhere now."
)
@click.option("--request-timeout", type=click.FloatRange(min=1.0), metavar="SECONDS", help="As in `evalrun run`.")
@add_printing_flags
@add_view_flag
@add_gpu_flags
def resume(
    directory: Path,
    endpoints: Sequence[str],
    request_timeout: float | None,
    gpu_options: GpuOptions,
    printing: Printing,
) -> ExitCode:
    """Go on with the run in DIR, whichever command started it on this machine. Nothing stored is done again."""
    from evalrun_cli.local.runs import resume_directory

    return resume_directory(
        directory,
        endpoints=endpoints,
        request_seconds=request_timeout,
        gpu_options=gpu_options,
        printing=printing,
        clock=SINCE_START,
    ).code


@evalrun.command(epilog=EXIT_CODES)
@click.argument("name")
@NAMESPACE
@click.option(
    "-f", "--follow", is_flag=True, help="Follow until the run has ended. Ctrl-C stops following; the run continues."
)
def status(name: str, namespace: str | None, follow: bool) -> ExitCode:
    """Show the EvalRun NAME of the current cluster: conditions, datasets, figures.

    The exit code is the run's if it has ended, otherwise 0.
    """
    from evalrun_cli.cluster.commands import show_status

    return show_status(name, namespace=namespace, follow=follow)


@evalrun.command()
@click.argument("name")
@NAMESPACE
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(["aggregator", "judge", "sandbox", "generator", "ray"]),
    help="Show only this part; may be repeated. On GPUs the generator runs on the Ray head.",
)
@click.option("-f", "--follow", is_flag=True, help="Follow the logs of the current pods.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Show only the last lines of each pod.")
def logs(name: str, namespace: str | None, parts: Sequence[str], follow: bool, tail: int | None) -> ExitCode:
    """Show the logs of the pods of EvalRun NAME, grouped by part."""
    from evalrun_cli.cluster.commands import show_logs

    return show_logs(name, namespace=namespace, parts=parts, follow=follow, tail=tail)


@evalrun.command(epilog=EXIT_CODES)
@click.argument("name")
@NAMESPACE
@click.option("--output", type=LocalDirectory(), help="Download all output files to this directory.")
def results(name: str, namespace: str | None, output: Path | None) -> ExitCode:
    """Show the results of EvalRun NAME and download its files.

    The aggregator sends them until a minute after the end, or as long as the spec says. Later they are read from their
    destination: a bucket with this machine's credentials, a volume through a temporary pod, which needs the rights to
    create pods and to exec in them.
    """
    from evalrun_cli.cluster.commands import show_results

    return show_results(name, namespace=namespace, output=output)
