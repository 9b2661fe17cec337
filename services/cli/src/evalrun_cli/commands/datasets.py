"""The command `data`: prepares, audits and shows datasets."""

from pathlib import Path
from typing import Any

import click

from evalrun_cli.commands.group import EXISTING_FILE, EXIT_CODES, add_judging_flags, evalrun
from evalrun_cli.local.options import LocalOptions
from evalrun_runtime.exits import ExitCode


@evalrun.group()
def data() -> None:
    """Prepare datasets, audit them for duplicates and leakage, and show the content of a prepared directory."""


@data.command(epilog=EXIT_CODES)
@click.argument("plan", type=EXISTING_FILE)
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Directory for the datasets.")
@click.option(
    "--sandbox-fusion",
    metavar="URL",
    help="SandboxFusion server for `sandboxfusion:` sources. Default: SANDBOX_FUSION_ENDPOINT.",
)
def prepare(plan: Path, output: Path, sandbox_fusion: str | None) -> ExitCode:
    """Prepare the datasets of PLAN: raw copies, records, manifests, and an audit.

    Resumes after a crash. Bad input leaves no files. If datasets overlap and the allow file does not list the overlap,
    everything is written and the exit code is 1.

    \b
    Example of a PLAN:
      datasets:
        - {name: humaneval, source: HumanEval.jsonl.gz}
        - {name: mbpp_reg, source: mbpp.jsonl.gz}
      allow: allow.yaml
    """
    from evalrun_data.governance.commands import prepare_data

    return prepare_data(plan, output=output, sandbox_fusion=sandbox_fusion)


@data.command(epilog=EXIT_CODES)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--map",
    "renamed",
    multiple=True,
    metavar="THEIRS=OURS",
    help="A column's name in the file and in a record: prompt, problem_id, test_list, entry_point, inputs, outputs, "
    "dataset, ...; may be repeated. question, tests and the like are recognized without it.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Write the problems as records to this file, as JSONL.")
@click.option(
    "--references", metavar="FILE", help="Correct programs, as answers. Default: those that the files publish."
)
@click.option("--read-only", is_flag=True, help="Run no program: references and tests are only read.")
@add_judging_flags
def check(
    files: tuple[str, ...],
    renamed: tuple[str, ...],
    output: Path | None,
    references: str | None,
    read_only: bool,
    options: LocalOptions,
) -> ExitCode:
    """Check the problems of each FILE and list every mistake, with its line.

    Found are rows that cannot be read, misspelt fields, an entry_point that no assert calls, tests that do not compile,
    and repeated problems. Then programs are run, contained: found are references that fail, and tests that accept a
    program that does nothing. Exit code 2 if there are any.

    \b
    Example:
      evalrun data check mine.jsonl --map question=prompt --map checks=test_list --output problems.jsonl
    """
    from evalrun_cli.problem_check import check_files

    return check_files(files, renamed, output, references, None if read_only else options)


@data.command(epilog=EXIT_CODES)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--allow", type=EXISTING_FILE, help="YAML list of accepted overlaps, each with a reason.")
@click.option(
    "--embedder",
    metavar="MODEL",
    type=click.Path(path_type=Path),
    help="Directory of an embedding model (model.onnx, tokenizer.json): problems of the same meaning are overlaps too. "
    "Needs the extra `embedder`; nothing is downloaded.",
)
@click.option(
    "--min-cosine",
    type=click.FloatRange(0, 1),
    help="Of two statements' vectors, from which they are the same problem. Default: 0.8.",
)
@click.option(
    "--pair-judge",
    metavar="URL",
    help="OpenAI-compatible server of a model that decides about near pairs. Its API key is read from "
    "EVALRUN_GENERATOR_API_KEY or OPENAI_API_KEY.",
)
@click.option("--pair-judge-model", metavar="NAME", help="Model of --pair-judge, as its server lists it.")
@click.option(
    "--judge-min-cosine", type=click.FloatRange(0, 1), help="From which the pair judge is asked. Default: 0.6."
)
@click.option("--max-judged-pairs", type=click.IntRange(min=1), help="Most questions of an audit. Default: 500.")
def audit(directory: Path, allow: Path | None, **meaning: Any) -> ExitCode:  # noqa: ANN401 - the options above
    """Audit the prepared directory DIR again, e.g. with a changed allow file.

    Writes DIR/data_manifests/audit_report.md and audit.json. Exit code 1 if an overlap is not allowed, 3 if pairs that
    may be the same problem are undecided.

    \b
    Example, which also compares meanings:
      evalrun data audit eval-data/ --embedder all-MiniLM-L6-v2-onnx/
    """
    from evalrun_cli.meaning_options import make_meaning_options
    from evalrun_data.governance.commands import audit_data

    return audit_data(directory, allow=allow, meaning=make_meaning_options(**meaning))


@data.command(epilog=EXIT_CODES)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
def show(directory: Path) -> ExitCode:
    """Show the datasets of the prepared directory DIR and verify its files against the manifests' hashes."""
    from evalrun_data.governance.commands import show_data

    return show_data(directory)


@data.command("audit-tests", epilog=EXIT_CODES)
@click.argument("run", metavar="RUN")
@click.option("--labels", type=EXISTING_FILE, help="Which of the run's programs are correct, or mutants, as JSONL.")
@click.option(
    "--stronger", metavar="RUN", help="Instead of --labels: the same programs judged with tests that you trust more."
)
@click.option(
    "--varied", metavar="RUN", help="The mutants judged with the tests of `evalrun data vary-tests`: which are wrong."
)
@click.option("--output", type=click.Path(path_type=Path), help="A file that gets every problem's figures, as JSON.")
def audit_tests(
    run: str, labels: Path | None, stronger: str | None, varied: str | None, output: Path | None
) -> ExitCode:
    """Print how good the tests of RUN's problems are, by programs whose correctness is known, or by mutants.

    RUN is a directory of outputs, or an fsspec URL, e.g. of `evalrun judge`. Exit code 1 if tests accept a wrong
    program or reject a correct one.

    \b
    Example of the labels (`evalrun data mutants` writes the last kind):
      {"problem_id": "sum", "correct": true}
      {"problem_id": "sum", "correct": false}
      {"problem_id": "sum", "mutant": "line 3: n < 2 became n <= 2"}
    """
    from evalrun_cli.suite_audit import audit_tests as audit_suites

    if (labels is None) == (stronger is None):
        raise click.UsageError("--labels or --stronger: give one of them")
    if varied is not None and labels is None:
        raise click.UsageError("--varied: needs --labels, which name the mutants and the references")
    return audit_suites(run, labels=labels, stronger=stronger, varied=varied, output=output)


@data.command(epilog=EXIT_CODES)
@click.argument("problems", metavar="PROBLEMS")
@click.option("--references", metavar="FILE", help="Correct Python programs, as answers. Default: those published.")
@click.option("--dataset", help="Dataset to take of PROBLEMS. Default: all that it holds.")
@click.option("--max-mutants", type=click.IntRange(1, 1000), default=200, show_default=True, help="Of one problem.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="A file for the programs, as JSONL.")
def mutants(problems: str, references: str | None, dataset: str | None, max_mutants: int, output: Path) -> ExitCode:
    """Write the references of PROBLEMS and mutants of them: programs with one small fault each.

    The references are those that HumanEval, MBPP and EvalPlus publish, or --references. The file serves `evalrun judge`
    as answers and `evalrun data audit-tests` as labels.

    \b
    Example:
      evalrun data mutants HumanEval.jsonl.gz --output mutants.jsonl
      evalrun judge --problems HumanEval.jsonl.gz --responses mutants.jsonl --samples as-given --output judged/
      evalrun data audit-tests judged/ --labels mutants.jsonl
    """
    from evalrun_cli.suite_mutants import write_mutants

    return write_mutants(problems, references, dataset=dataset, maximum=max_mutants, output=output)


@data.command("vary-tests", epilog=EXIT_CODES)
@click.argument("problems", metavar="PROBLEMS")
@click.option("--references", metavar="FILE", help="Correct Python programs, as answers. Default: those published.")
@click.option("--dataset", help="Dataset to take of PROBLEMS. Default: all that it holds.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="A file for the problems, as JSONL.")
def vary_tests(problems: str, references: str | None, dataset: str | None, output: Path) -> ExitCode:
    """Write PROBLEMS with other tests: on varied arguments, a function must return what the reference does.

    The arguments are those of the published tests, each changed a little or taken from another call. They tell wrong
    mutants from equivalent ones in `evalrun data audit-tests`. Problems whose tests call no function are left out.

    \b
    Example, after that of `evalrun data mutants`:
      evalrun data vary-tests HumanEval.jsonl.gz --output varied.jsonl
      evalrun judge --problems varied.jsonl --responses mutants.jsonl --samples as-given --output varied/
      evalrun data audit-tests judged/ --labels mutants.jsonl --varied varied/
    """
    from evalrun_cli.suite_variation import write_varied_tests

    return write_varied_tests(problems, references, dataset=dataset, output=output)
