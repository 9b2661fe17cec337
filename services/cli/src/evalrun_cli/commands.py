"""Every subcommand: its flags and its help. Imports of what it runs stand inside, to keep `evalrun --help` fast."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from evalrun_runtime.exits import ExitCode

EXIT_CODES = """\b
Exit codes:
  0 succeeded   1 failed   2 bad input   3 degraded: some problems could not be judged
  4 gate failed   5 gate inconclusive   130 stopped, can be resumed"""

EXISTING_FILE = click.Path(path_type=Path)
COMPARATORS = ("exact", "verl", "sandbox-fusion", "tokens", "standard")
"""As the EvalRun's API has them, whose import would take longer than `--help` may."""
NAMESPACE = click.option(
    "-n", "--namespace", metavar="NAME", help="In a cluster: the namespace. Default: the context's."
)

SANDBOX_FUSION = click.option(
    "--sandbox-fusion",
    metavar="URL",
    help="Judge through the SandboxFusion server at this address: no sandbox is started here. judgeMode: Submit needs "
    "one, which has the tests. Its token, if it wants one, is read from EVALRUN_JUDGE_SANDBOX_TOKEN.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="evalrun", message="evalrun %(version)s")
def evalrun() -> None:
    """Evaluate coding models with verdicts that can be trusted.

    \b
    Try it:            evalrun run k8s/samples/demo.yaml --local --endpoint builtin:demo
    Your own answers:  evalrun judge --problems HumanEval.jsonl.gz --responses answers.jsonl --output out/

    Programs are judged in a sandbox that is probed when it starts; where this machine cannot contain them, nothing
    runs. A judge that could not tell is never counted against the model.
    """


@evalrun.command(epilog=EXIT_CODES)
@click.argument("file", type=EXISTING_FILE)
@click.option("--local", is_flag=True, help="Run here, with child processes on loopback: no cluster needed.")
@NAMESPACE
@click.option("--no-follow", is_flag=True, help="In a cluster: apply the file, and do not wait for its run.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="With --local: the folder of the results. Default: outputs/<run>_<time>.",
)
@click.option(
    "--endpoint",
    "endpoints",
    multiple=True,
    metavar="URL",
    help="With --local: an OpenAI-compatible server to generate with; may be repeated. `builtin:demo` starts the "
    "recorded answers of the demo set. Its key, if it wants one, is read from EVALRUN_GENERATOR_API_KEY.",
)
@click.option("--resume", type=click.Path(path_type=Path), help="With --local: go on with the run in this folder.")
@click.option("--slots", type=click.IntRange(min=1), help="Programs judged at once. Default: one a CPU.")
@click.option(
    "--allow-uncontained",
    is_flag=True,
    help="Judge even where this machine cannot contain programs. Trusted code only.",
)
@SANDBOX_FUSION
def run(
    file: Path,
    local: bool,
    namespace: str | None,
    no_follow: bool,
    output: Path | None,
    endpoints: Sequence[str],
    resume: Path | None,
    slots: int | None,
    allow_uncontained: bool,
    sandbox_fusion: str | None,
) -> ExitCode:
    """Run the EvalRun of FILE and show its results.

    Without --local FILE is applied to the current cluster (KUBECONFIG) and its run is followed; Ctrl-C ends the
    following, not the run. With --local the same services run on this machine; a spec that asks for `rollout` needs
    --endpoint then. Ctrl-C stops it cleanly; --resume goes on where it stopped, also after a crash.
    """
    here = {"--output": output, "--endpoint": endpoints, "--resume": resume, "--slots": slots}
    here |= {"--allow-uncontained": allow_uncontained or None, "--sandbox-fusion": sandbox_fusion}
    given = [flag for flag, value in here.items() if value]
    if not local:
        from evalrun_cli.cluster_commands import run_in_cluster

        if given:
            raise click.UsageError(f"{', '.join(given)}: of runs on this machine only: add --local")
        return run_in_cluster(file, namespace=namespace, follow=not no_follow)
    from evalrun_cli.local_run import LocalOptions
    from evalrun_cli.runs import run_file

    if namespace is not None or no_follow:
        raise click.UsageError("--namespace, --no-follow: of runs in a cluster only: leave --local away")
    options = LocalOptions(slots, allow_uncontained, sandbox_fusion)
    return run_file(file, output=output, endpoints=endpoints, resume=resume, options=options)


@evalrun.command(epilog=EXIT_CODES)
@click.argument("name")
@NAMESPACE
@click.option("-f", "--follow", is_flag=True, help="Until the run has ended; Ctrl-C ends the following, not the run.")
def status(name: str, namespace: str | None, follow: bool) -> ExitCode:
    """Show the EvalRun NAME of the current cluster: conditions, datasets, figures.

    The exit code is the run's once it has ended, 0 before.
    """
    from evalrun_cli.cluster_commands import show_status

    return show_status(name, namespace=namespace, follow=follow)


@evalrun.command()
@click.argument("name")
@NAMESPACE
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(["aggregator", "judge", "sandbox", "generator", "ray"]),
    help="Only of this part; may be repeated. On GPUs the generator runs on the Ray head.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on while the pods that are there now run.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Of each pod only the last lines.")
def logs(name: str, namespace: str | None, parts: Sequence[str], follow: bool, tail: int | None) -> ExitCode:
    """Show the logs of the pods of the EvalRun NAME, part by part."""
    from evalrun_cli.cluster_commands import show_logs

    return show_logs(name, namespace=namespace, parts=parts, follow=follow, tail=tail)


@evalrun.command(epilog=EXIT_CODES)
@click.argument("name")
@NAMESPACE
@click.option("--output", type=click.Path(path_type=Path), help="Bring every file of the outputs into this folder.")
def results(name: str, namespace: str | None, output: Path | None) -> ExitCode:
    """Show the results of the EvalRun NAME, and bring its files.

    Its aggregator sends them until the run's TTL (that takes the right to exec in pods), then they are read from where
    they were written, with the credentials of this machine.
    """
    from evalrun_cli.cluster_commands import show_results

    return show_results(name, namespace=namespace, output=output)


@evalrun.command(epilog=EXIT_CODES)
@click.option(
    "--problems",
    multiple=True,
    required=True,
    metavar="FILE",
    help="Problem records (JSONL, Parquet), HumanEval.jsonl.gz or mbpp.jsonl as published, or verl Parquet; "
    "may be repeated: a dataset may stand in several files.",
)
@click.option(
    "--responses",
    multiple=True,
    required=True,
    metavar="FILE",
    help="JSONL or Parquet rows: problem_id (or task_id), response (or completion); optional dataset, sample, mode, "
    "language; may be repeated.",
)
@click.option("--output", required=True, type=click.Path(path_type=Path), help="The folder of the results.")
@click.option(
    "--judge-mode",
    type=click.Choice(["RunCode", "Submit"]),
    default="RunCode",
    show_default=True,
    help="Submit: a SandboxFusion server (--sandbox-fusion) has the tests, in the rows that the problems name, and "
    "compares; such results can be forged and are marked so.",
)
@click.option(
    "--comparator",
    type=click.Choice(COMPARATORS),
    help="What decides for stdin/stdout tests. Default: standard, or the problem's own.",
)
@click.option("--time-limit", type=click.FloatRange(min=0.1), help="CPU seconds a test, where the problem sets none.")
@click.option("--resume", is_flag=True, help="Go on in a folder that holds a part of this very judgement.")
@click.option("--slots", type=click.IntRange(min=1), help="Programs judged at once. Default: one a CPU.")
@click.option(
    "--allow-uncontained",
    is_flag=True,
    help="Judge even where this machine cannot contain programs. Trusted code only.",
)
@SANDBOX_FUSION
def judge(
    problems: Sequence[str],
    responses: Sequence[str],
    output: Path,
    judge_mode: Literal["RunCode", "Submit"],
    comparator: str | None,
    time_limit: float | None,
    resume: bool,
    slots: int | None,
    allow_uncontained: bool,
    sandbox_fusion: str | None,
) -> ExitCode:
    """Judge answers that were made elsewhere. Nothing is generated.

    Writes the same outputs as a run: summary.json, results.jsonl, results.parquet, QA logs. Problems without a
    response are left out, and their number is shown.
    """
    from evalrun_cli.local_run import LocalOptions
    from evalrun_cli.runs import judge_files

    options = LocalOptions(slots, allow_uncontained, sandbox_fusion)
    return judge_files(
        problems,
        responses,
        output=output,
        judge_mode=judge_mode,
        comparator=comparator,
        time_limit=time_limit,
        resume=resume,
        options=options,
    )


@evalrun.command(epilog=EXIT_CODES)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--output", type=click.Path(path_type=Path), help="The folder of the new results. Default: DIRECTORY_rejudged."
)
@click.option("--slots", type=click.IntRange(min=1), help="Programs judged at once. Default: one a CPU.")
@click.option(
    "--allow-uncontained",
    is_flag=True,
    help="Judge even where this machine cannot contain programs. Trusted code only.",
)
@SANDBOX_FUSION
def rejudge(
    directory: Path, output: Path | None, slots: int | None, allow_uncontained: bool, sandbox_fusion: str | None
) -> ExitCode:
    """Judge the completions of the run in DIRECTORY again. Nothing is generated, no GPU is needed.

    The run's own folder stays as it is; the new verdicts go to a folder of their own.
    """
    from evalrun_cli.local_run import LocalOptions
    from evalrun_cli.runs import rejudge_directory

    options = LocalOptions(slots, allow_uncontained, sandbox_fusion)
    return rejudge_directory(directory, output=output, options=options)


@evalrun.command(epilog=EXIT_CODES)
@click.argument("file", type=EXISTING_FILE)
@click.option(
    "--local", "machine", is_flag=True, help="As `run --local` takes it: paths are fine, no output is needed."
)
def validate(file: Path, machine: bool) -> ExitCode:
    """Check the EvalRun of FILE.

    The rules are those that the cluster's API server applies. Every problem is listed, with what to write instead.
    """
    from evalrun_operator.api.manifest import load_manifest

    manifest = load_manifest(file, place="machine" if machine else "cluster")
    click.echo(f"{file}: EvalRun {manifest.metadata.name} is valid")
    return ExitCode.SUCCEEDED


TO_FILE = click.option("--output", type=click.Path(path_type=Path), help="Write to this file instead of the terminal.")


@evalrun.command(epilog=EXIT_CODES)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option(
    "--format",
    "view",
    type=click.Choice(["text", "markdown", "json", "html"]),
    default="text",
    show_default=True,
    help="How it is shown.",
)
@TO_FILE
def compare(first: str, second: str, view: str, output: Path | None) -> ExitCode:
    """Compare run B with run A, problem by problem.

    A and B are folders of outputs, or fsspec URLs (s3://..., gs://...). Only problems judged in both count. Shows each
    difference with its paired bootstrap interval, McNemar's exact test (one sample a problem), the problems that only
    one of them solved, how small a difference so many problems could show, and whatever the runs do not have in common.
    """
    from evalrun_cli.comparison_views import compare as compare_runs

    return compare_runs(first, second, view=view, output=output)


@evalrun.command(epilog=EXIT_CODES)
@click.argument("run", metavar="RUN")
@click.option(
    "--policy",
    required=True,
    type=EXISTING_FILE,
    help="A YAML list of gates, each as in an EvalRun's spec: baseline, dataset, metric, maxRegression, confidence. "
    "A baseline is a URL, or a folder relative to this file.",
)
@click.option(
    "--format",
    "view",
    type=click.Choice(["text", "markdown", "json", "html"]),
    default="text",
    show_default=True,
    help="How it is shown.",
)
@TO_FILE
def gate(run: str, policy: Path, view: str, output: Path | None) -> ExitCode:
    """Decide whether the run in RUN passes the gates of a policy file.

    RUN is a folder of outputs, or an fsspec URL. By the paired interval of RUN minus baseline: PASS where its lower
    bound is at least -maxRegression, FAIL where its upper bound is below, INCONCLUSIVE otherwise. Results that a
    program could have forged feed no gate.

    \b
    Example:
      - {baseline: outputs/main, dataset: humaneval, metric: accepted_at_1, maxRegression: "0.02"}
    """
    from evalrun_cli.comparison_views import gate as decide_gates

    return decide_gates(run, policy, view=view, output=output)


@evalrun.command(epilog=EXIT_CODES)
@click.argument("run", metavar="DIR")
@TO_FILE
def report(run: str, output: Path | None) -> ExitCode:
    """Write report.html of the run in DIR again.

    Reads what the run left behind (summary.json, run_info.json, results, QA logs); nothing is judged. With --output,
    DIR may be an fsspec URL.
    """
    from evalrun_cli.report_file import write_report

    return write_report(run, output=output)


SERVICES = {
    "sandbox": "runs programs, contained (HTTP)",
    "judge": "the gateway: a submission and its tests in, a verdict out (gRPC)",
    "aggregator": "a run's ledger, metrics and outputs (gRPC)",
    "recorded": "recorded completions behind an OpenAI-compatible API (HTTP)",
}


@evalrun.group()
def serve() -> None:
    """Serve one part by itself.

    Settings come from flags, from the environment (EVALRUN_<SERVICE>_<FLAG>) and from --config FILE, in this order.
    A service binds loopback unless told otherwise, prints `evalrun <service> ready on <address>` when it can serve,
    and drains on SIGTERM. `evalrun serve <service> --help` lists every setting.
    """


def _add_service(name: str, summary: str) -> None:
    passes_on = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

    @serve.command(name=name, context_settings=passes_on, short_help=summary[0].upper() + summary[1:] + ".")
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def service(arguments: Sequence[str]) -> int:
        from importlib import import_module

        module = "evalrun_generator.recorded.__main__" if name == "recorded" else f"evalrun_{name}.__main__"
        code: int = import_module(module).main(arguments)
        return code


for _name, _summary in SERVICES.items():
    _add_service(_name, _summary)
