"""The commands `compare`, `gate` and `report`."""

from pathlib import Path

import click

from evalrun_cli.attestation.trust_files import NOBODY, TrustFiles
from evalrun_cli.commands.group import EXISTING_FILE, EXIT_CODES, TO_FILE, add_format_flags, add_formats, evalrun
from evalrun_cli.commands.trust_options import add_trust_flags
from evalrun_runtime.exits import BadInputError, ExitCode


@evalrun.command(epilog=EXIT_CODES)
@click.argument("runs", metavar="A B [C ...]", nargs=-1, required=True)
@click.option("--all-pairs", is_flag=True, help="Compare every pair of runs. Default: A with each other run.")
@click.option(
    "--pool-seeds",
    is_flag=True,
    help="Pool runs that differ only in protocol.seed.",
)
@click.option(
    "--phases",
    is_flag=True,
    help="The runs are phases of a training (baseline, sft, dpo, grpo, repair), by lineage.phase or as PHASE=RUN: say "
    "whether each one's headline figures moved as they should. A directory stands for its runs that say a phase.",
)
@add_format_flags
def compare(
    runs: tuple[str, ...], all_pairs: bool, pool_seeds: bool, phases: bool, view: str, output: Path | None
) -> ExitCode:
    """Compare run B with run A, or several runs with A, problem by problem.

    Runs are directories of outputs or fsspec URLs (s3://..., gs://...). Only problems judged in all runs count.

    For two runs: each difference with its paired bootstrap interval, McNemar's exact test (one sample per problem), the
    problems solved by only one run, the minimum detectable difference, and how the runs' conditions differ.

    For more runs: the figures of every run, each pair's difference of pass@1 with its p-value after Holm's
    correction, and the problems that only some runs solved.
    """
    if output is not None and output.suffix == ".html" and view == "text":
        view = "html"
    if len(runs) == 2 and not pool_seeds and not phases:
        from evalrun_cli.comparisons.views import compare as compare_runs

        return compare_runs(*runs, view=view, output=output)
    from evalrun_cli.comparisons.several_views import compare_several_runs

    return compare_several_runs(
        runs, all_pairs=all_pairs, pool_seeds=pool_seeds, phases=phases, view=view, output=output
    )


@evalrun.command(epilog=EXIT_CODES)
@click.argument("run", metavar="RUN")
@click.option(
    "--policy",
    required=True,
    type=EXISTING_FILE,
    help="A YAML list of gates, each as in an EvalRun's spec: baseline, dataset, metric, maxRegression, confidence. "
    "A baseline is a URL, or a directory relative to this file. Several are decided with Bonferroni's correction.",
)
@click.option(
    "--sample-size",
    is_flag=True,
    help="Only estimate how many problems, or samples per problem, each gate needs, from the difference between pilot "
    "RUN and baseline.",
)
@click.option(
    "--require-attested",
    is_flag=True,
    help="Refuse a baseline that is not signed by --trust or --identity, or that differs from what was signed.",
)
@add_trust_flags
@add_formats("text", "markdown", "json", "html", "junit")
def gate(
    run: str,
    policy: Path,
    sample_size: bool,
    require_attested: bool,
    trust: TrustFiles,
    view: str,
    output: Path | None,
) -> ExitCode:
    """Decide the gates of a policy file for a run.

    RUN is a directory of outputs or an fsspec URL. Each gate uses the paired interval of RUN minus baseline: PASS if
    its lower bound is at least -maxRegression, FAIL if its upper bound is below that, INCONCLUSIVE otherwise. Results
    that a program could have forged are not used; test data is used only if allowTestRole names it.

    \b
    Example:
      - {baseline: outputs/main, dataset: mbpp_reg, metric: accepted_at_1, maxRegression: "0.05"}
    """
    from evalrun_cli.comparisons.views import gate as decide_gates
    from evalrun_cli.comparisons.views import gate_sample_sizes

    if require_attested:
        from evalrun_cli.attestation.requirement import check_baselines

        check_baselines(policy, trust)
    elif trust != NOBODY:
        raise BadInputError(
            "--trust, --identity and --revocations: they say nothing without --require-attested: add it"
        )

    return (gate_sample_sizes if sample_size else decide_gates)(run, policy, view=view, output=output)


@evalrun.command(epilog=EXIT_CODES)
@click.argument("run", metavar="DIR")
@TO_FILE
def report(run: str, output: Path | None) -> ExitCode:
    """Rewrite report.html of the run in DIR.

    Reads the run's outputs (summary.json, run_info.json, results, QA logs); nothing is judged. With --output, DIR may
    be an fsspec URL.
    """
    from evalrun_cli.comparisons.report_file import write_report

    return write_report(run, output=output)
