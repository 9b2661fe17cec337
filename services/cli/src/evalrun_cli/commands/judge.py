"""The commands `judge`, `rejudge` and `validate`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from evalrun_cli.commands.group import (
    EXISTING_FILE,
    EXIT_CODES,
    SINCE_START,
    LocalDirectory,
    Numbers,
    add_judging_flags,
    add_printing_flags,
    add_view_flag,
    evalrun,
)
from evalrun_cli.local.options import LocalOptions, Printing
from evalrun_registry.comparators import COMPUTED
from evalrun_runtime.exits import ExitCode


class AnswersPerProblem(click.ParamType[int | Literal["AsGiven"]]):
    """A number of answers, or `as-given`."""

    name = "number"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | Literal["AsGiven"]:
        """Return the value for the run configuration."""
        if value == "as-given":
            return "AsGiven"
        try:
            number = int(value)
        except ValueError:
            number = 0
        if number < 1:
            self.fail(f"{value!r}: write a number from 1, or as-given", param, ctx)
        return number


@evalrun.command(epilog=EXIT_CODES)
@click.option(
    "--problems",
    multiple=True,
    metavar="FILE",
    help="Problem file: records (JSONL, Parquet), published HumanEval.jsonl.gz or mbpp.jsonl, or verl Parquet. May be "
    "repeated; a dataset may span several files.",
)
@click.option(
    "--responses",
    multiple=True,
    metavar="FILE",
    help="File of answers, JSONL or Parquet: problem_id (or task_id), response (or completion); optional dataset, "
    "sample, mode, language. May be repeated.",
)
@click.option(
    "--verl-config",
    type=EXISTING_FILE,
    help="An evaluation.yaml of verl, instead of --problems and --responses: its data.path holds both.",
)
@click.option("--output", required=True, type=LocalDirectory(), help="Directory for the results.")
@click.option("--name", default="judge", show_default=True, help="Name of the run in report and comparisons.")
@click.option("--model", help="Model that generated the answers, for report and comparisons.")
@click.option("--step", type=click.IntRange(min=0), help="Training step of that model, for `history`.")
@click.option(
    "--judge-mode",
    type=click.Choice(["RunCode", "Submit"]),
    default="RunCode",
    show_default=True,
    help="Submit: a SandboxFusion server (--sandbox-fusion) has the tests and judges. Programs can forge such results, "
    "so they are marked.",
)
@click.option(
    "--comparator",
    type=click.Choice(COMPUTED),
    help="Comparator of stdin/stdout tests. Default: the problem's own, or standard.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0.1, max=600),
    help="CPU seconds per test, e.g. 2.5, for problems without a limit.",
)
@click.option(
    "--grader",
    metavar="FILE",
    help="Python file with compute_score(data_source, solution_str, ground_truth, extra_info), which scores answers "
    "in the sandbox instead of tests; builtin:verl: verl's own, for what is not code.",
)
@click.option(
    "--samples",
    metavar="NUMBER|as-given",
    type=AnswersPerProblem(),
    help="Answers that each problem should have. Default: the most that a problem of its dataset has. A missing answer "
    "is not judged. as-given: as many as the files hold, e.g. of mutants; such a run decides no gate.",
)
@click.option(
    "--k",
    metavar="NUMBER,...",
    type=Numbers(),
    help="The k of pass@k, e.g. 1,5. Default: 1, 10 and 100, as far as the answers per problem reach.",
)
@click.option(
    "--exclude-problems",
    multiple=True,
    metavar="FILE_OR_IDS",
    help="Problems to leave out, with their answers: ids with commas between them, a file with one id a line, or what "
    "`data audit-tests --output` wrote. May be repeated.",
)
@click.option("--resume", is_flag=True, help="Resume an interrupted judgement with the same arguments.")
@add_printing_flags
@add_view_flag
@add_judging_flags
def judge(
    problems: Sequence[str],
    responses: Sequence[str],
    verl_config: Path | None,
    output: Path,
    name: str,
    model: str | None,
    step: int | None,
    judge_mode: Literal["RunCode", "Submit"],
    comparator: str | None,
    time_limit: float | None,
    grader: str | None,
    samples: int | Literal["AsGiven"] | None,
    k: Sequence[int] | None,
    exclude_problems: Sequence[str],
    resume: bool,
    options: LocalOptions,
    printing: Printing,
) -> ExitCode:
    """Judge existing answers. Nothing is generated.

    Writes the same outputs as a run: summary.json, results.jsonl, results.parquet, QA logs. A problem without an answer
    is not judged: the run is degraded (exit code 3), and its figures say how many problems they are about.
    """
    if verl_config is not None and (problems or responses):
        raise click.UsageError(f"--problems, --responses: {verl_config} names the file already: remove them")
    if verl_config is None and not (problems and responses):
        raise click.UsageError("--problems and --responses: name the files, or --verl-config evaluation.yaml")
    from evalrun_cli.local.parts import launch_parts, select_parts

    # The parts are launched before the imports that take longest.
    with launch_parts(select_parts(options), [*problems, *responses]) as launched:
        from evalrun_api.v1alpha1 import Grader
        from evalrun_cli.local.run_session import session_for
        from evalrun_cli.local.runs import judge_files

        own = None
        if verl_config is not None:
            from evalrun_cli.verl_files.commands import resolve_rows

            rows, own = resolve_rows(verl_config, output)
            problems = responses = [rows]
        return judge_files(
            problems,
            responses,
            output=output,
            judge_mode=judge_mode,
            comparator=comparator,
            time_limit=time_limit,
            grader=own if grader is None else Grader(path=grader),
            exclude=exclude_problems,
            samples=samples,
            k=k or (),
            name=name,
            model=model,
            step=step,
            resume=resume,
            options=options,
            session=session_for(printing, SINCE_START, launched),
        ).code


@evalrun.command(epilog=EXIT_CODES)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--output", type=LocalDirectory(), help="Directory for the new results. Default: DIRECTORY_rejudged.")
@add_printing_flags
@add_view_flag
@add_judging_flags
def rejudge(directory: Path, output: Path | None, options: LocalOptions, printing: Printing) -> ExitCode:
    """Judge the completions of the run in DIRECTORY again. Nothing is generated and no GPU is needed.

    The run's directory is not changed; the new verdicts are written to a separate directory.
    """
    from evalrun_cli.local.parts import launch_parts, select_parts

    with launch_parts(select_parts(options), [str(directory)]) as launched:
        from evalrun_cli.local.run_session import session_for
        from evalrun_cli.local.runs import rejudge_directory

        session = session_for(printing, SINCE_START, launched)
        return rejudge_directory(directory, output=output, options=options, session=session).code


@evalrun.command(epilog=EXIT_CODES)
@click.argument("file", type=EXISTING_FILE)
@click.option(
    "--local",
    "machine",
    is_flag=True,
    help="Check for `run --local`: sources may be paths, which are read where they are there; output is optional.",
)
def validate(file: Path, machine: bool) -> ExitCode:
    """Check the EvalRuns and EvalSchedules of FILE.

    The rules are those of the cluster's API server. Every error is listed with what to write instead. Duplicate keys
    are errors too; kubectl would silently use the last.
    """
    from evalrun_api.manifest import load_manifests, load_schedules

    schedules = load_schedules(file)
    for schedule in schedules:
        click.echo(f"{file}: EvalSchedule {schedule.metadata.name} is valid")
    for manifest in load_manifests(file, place="machine" if machine else "cluster", needed=not schedules):
        missing: list[str] = []
        if machine:
            from evalrun_cli.local.validated_sources import check_sources

            missing = check_sources(manifest.spec, file.parent)
        click.echo(f"{file}: EvalRun {manifest.metadata.name} is valid")
        for warning in missing:
            click.echo(f"{file}: warning: {warning}")
        if manifest.spec.gates:
            from evalrun_cli.run_gate import outlooks

            for outlook in outlooks(manifest.spec):
                click.echo(f"{file}: {outlook}")
    return ExitCode.SUCCEEDED
