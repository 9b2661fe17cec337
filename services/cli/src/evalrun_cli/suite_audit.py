"""`evalrun data audit-tests`: measures the quality of tests from a judged run and the labels of its programs."""

import json
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from evalrun_cli.printable_text import printable_lines
from evalrun_data.rows import Row
from evalrun_data.sources import read_rows
from evalrun_results.stored_run import StoredRun
from evalrun_results.suite_quality import KnownProgram, SuiteQuality, known_program, suite_qualities
from evalrun_runtime.exits import BadInputError, ExitCode

SHOWN = 20
_COLUMNS = (
    "dataset", "problem_id", "sample", "turn", "repeat", "judged", "accepted", "final_status", "total_judge_time",
    "tests.list.element.status",
)  # fmt: skip

Key = tuple[str, str, int]
"""Dataset, problem, sample."""


@dataclass(frozen=True)
class Label:
    """Known facts about a program."""

    is_correct: bool | None
    """None: unknown, for a mutant."""
    mutant: str = ""
    """For a mutant, the change."""


@dataclass(frozen=True)
class Settled:
    """Labels, some of them settled by varied tests."""

    labels: dict[Key, Label]
    problems: frozenset[tuple[str, str]]
    """Problems whose varied tests accept every correct program: a mutant that fails there is wrong."""


def audit_tests(
    run: str, *, labels: Path | None, stronger: str | None, varied: str | None = None, output: Path | None
) -> ExitCode:
    """Print how good the tests of a run are. With `output`, write every problem's numbers there as JSON.

    Args:
        run: the judged run.
        labels: a file that names the correct programs.
        stronger: instead of labels, a run of the same programs with tests whose verdicts count as the truth.
        varied: a run of the labelled mutants and references with varied tests.
        output: a file for the numbers.

    Raises:
        BadInputError: run or labels cannot be used, or the file cannot be written.
    """
    stored = StoredRun.open(run)
    programs: defaultdict[tuple[str, str], list[KnownProgram]] = defaultdict(list)
    results = {
        (result.dataset, result.problem_id, result.sample): result
        for result in stored.results(_COLUMNS)
        if result.repeat == 0 and result.turn == 0
    }
    unjudged = 0
    known = _labels(labels, list(results)) if labels is not None else _verdicts(stronger or "", results.keys())
    settled = settle_labels(known, _verdicts(varied, results.keys()) if varied is not None else {})
    known = settled.labels
    for key, label in known.items():
        program = known_program(results[key], is_correct=label.is_correct, mutant=label.mutant)
        if program is None:
            unjudged += 1
        else:
            programs[key[:2]].append(program)
    found = suite_qualities(programs)
    if output is not None:
        _write(output, found)
    _print(found, unjudged, settled.problems if varied is not None else None)
    return ExitCode.FAILED if any(each.accepts_wrong or each.rejects_correct for each in found) else ExitCode.SUCCEEDED


def settle_labels(labels: dict[Key, Label], varied: dict[Key, Label]) -> Settled:
    """Return the labels. Mutants that fail varied tests are wrong if those tests accept each correct program. Pure.

    A mutant that passes them stays unknown, and so does every mutant of a problem whose varied tests reject a correct
    program: those tests could not be made, or the function has several valid results.
    """
    right: defaultdict[tuple[str, str], list[bool]] = defaultdict(list)
    for key, verdict in varied.items():
        if key in labels and labels[key].is_correct:
            right[key[:2]].append(bool(verdict.is_correct))
    problems = frozenset(problem for problem, accepted in right.items() if all(accepted))
    wrong = {
        key: Label(is_correct=False, mutant=label.mutant)
        for key, label in labels.items()
        if label.is_correct is None and key[:2] in problems and key in varied and not varied[key].is_correct
    }
    return Settled(labels | wrong, problems)


def _verdicts(stronger: str, keys: Collection[Key]) -> dict[Key, Label]:
    """Return the verdicts of another run as labels, for the programs that both have."""
    found = {
        (each.dataset, each.problem_id, each.sample): Label(bool(each.accepted))
        for each in StoredRun.open(stronger).results(_COLUMNS)
        if each.repeat == 0 and each.turn == 0 and each.judged
    }
    labels = {key: label for key, label in found.items() if key in keys}
    if not labels:
        raise BadInputError(
            f"{stronger}: has no judged program of the run: judge the same answers to the same datasets"
        )
    return labels


def _labels(file: Path, keys: list[Key]) -> dict[Key, Label]:
    """Return the labels of the programs. Rows without `sample` are numbered in order, like responses."""
    datasets: defaultdict[str, set[str]] = defaultdict(set)
    for dataset, problem_id, _ in keys:
        datasets[problem_id].add(dataset)
    known, labels = set(keys), dict[Key, Label]()
    next_sample: defaultdict[tuple[str, str], int] = defaultdict(int)
    for row in read_rows(str(file)):
        problem_id = row.name("problem_id" if row.has("problem_id") or not row.has("task_id") else "task_id")
        dataset = _dataset(row, problem_id, datasets[problem_id])
        sample = row.optional_count("sample")
        if sample is None:
            sample = next_sample[dataset, problem_id]
        next_sample[dataset, problem_id] = sample + 1
        key = (dataset, problem_id, sample)
        if key not in known:
            raise row.error(f"the run has no sample {sample} of problem '{problem_id}' of dataset '{dataset}'")
        if key in labels:
            raise row.error(f"sample {sample} of problem '{problem_id}' is labelled twice")
        correct = row.optional_flag("correct")
        mutant = row.optional_text("mutant") if correct is None else ""
        if correct is None and not mutant:
            raise row.wrong("correct", "true or false; mutant serves too")
        labels[key] = Label(correct, mutant)
    return labels


def _dataset(row: Row, problem_id: str, datasets: set[str]) -> str:
    if row.has("dataset"):
        return row.name("dataset")
    if not datasets:
        raise row.error(f"the run has no problem '{problem_id}'")
    if len(datasets) > 1:
        raise row.error(f"problem '{problem_id}' is in several datasets ({', '.join(sorted(datasets))}): add 'dataset'")
    return next(iter(datasets))


def _write(output: Path, found: list[SuiteQuality]) -> None:
    try:
        content = {"schema": 1, "problems": [each.as_json() for each in found], "exclude": _list_exclusions(found)}
        output.write_text(json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise BadInputError(f"--output {output}: {error.strerror}") from error


def _list_exclusions(found: list[SuiteQuality]) -> dict[str, list[str]]:
    """Return the problems with wrong tests by dataset, in the form of an EvalRun's `excludeProblems`."""
    faulty: defaultdict[str, list[str]] = defaultdict(list)
    for each in found:
        if each.accepts_wrong or each.rejects_correct:
            faulty[each.dataset].append(each.problem_id)
    return dict(faulty)


def _print(found: list[SuiteQuality], unjudged: int, settled: frozenset[tuple[str, str]] | None) -> None:
    correct, accepted = sum(each.correct for each in found), sum(each.correct_accepted for each in found)
    wrong, rejected = sum(each.wrong for each in found), sum(each.wrong_rejected for each in found)
    runs = sum(each.tests * (each.correct + each.wrong + each.mutants) for each in found)
    told = f"{accepted} of {correct} correct programs accepted, {rejected} of {wrong} wrong ones rejected"
    mutants = sum(each.mutants for each in found)
    if mutants:
        told += f", {mutants - sum(len(each.survivors) for each in found)} of {mutants} mutants"
    lines = [f"{len(found)} problems: {told}; {runs:,} program runs"]
    if unjudged:
        lines.append(f"{unjudged} programs were not judged: they say nothing about the tests")
    weak = [each for each in found if each.accepts_wrong]
    passed = [f"{_name(e)}: {e.wrong - e.wrong_rejected} of {e.wrong}{_example(e)}" for e in weak]
    lines += _render_list("accepts wrong programs", passed)
    strict = [each for each in found if each.rejects_correct]
    refused = [f"{_name(e)}: {e.correct - e.correct_accepted} of {e.correct}{_checker(e)}" for e in strict]
    lines += _render_list("rejects correct programs", refused)
    if settled is not None:
        lines += _render_varied_tests(found, settled)
    alive = [each for each in found if each.survivors and (each.dataset, each.problem_id) not in (settled or ())]
    passing = [f"{_name(e)}: {len(e.survivors)} of {e.mutants}, e.g. {e.survivors[0]}" for e in alive]
    lines += _render_list("accepts mutants, each wrong or equivalent to the reference", passing)
    idle = [f"{_name(each)}: {len(each.idle_tests)} of {each.tests} tests" for each in found if each.idle_tests]
    lines += _render_list("has tests that reject nothing which the others do not", idle)
    for dataset, problems in _list_exclusions(found).items():
        lines.append(f"to leave these out of a run: {{name: {dataset}, excludeProblems: {json.dumps(problems)}}}")
    print(printable_lines("\n".join(lines)))  # noqa: T201 - the command's result


def _render_varied_tests(found: list[SuiteQuality], settled: frozenset[tuple[str, str]]) -> list[str]:
    equivalent = sum(len(each.survivors) for each in found if (each.dataset, each.problem_id) in settled)
    lines = [f"accepts {equivalent} mutants that do not differ on varied arguments: equivalent as far as those show"]
    unsettled = [_name(each) for each in found if (each.dataset, each.problem_id) not in settled]
    return lines + _render_list("has varied tests that reject a correct program, or that judged none", unsettled)


def _example(each: SuiteQuality) -> str:
    return f", e.g. {each.wrong_mutants[0]}" if each.wrong_mutants else ""


def _render_list(title: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    more = [f"  and {len(lines) - SHOWN} more (--output has all)"] if len(lines) > SHOWN else []
    return [f"{title}: {len(lines)} problems", *(f"  {line}" for line in lines[:SHOWN]), *more]


def _name(each: SuiteQuality) -> str:
    return f"{each.dataset}/{each.problem_id}"


def _checker(each: SuiteQuality) -> str:
    return f" ({each.rejected_for_output} for their output alone: needs a checker?)" if each.rejected_for_output else ""
