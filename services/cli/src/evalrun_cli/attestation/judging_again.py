"""Judges a random selection of a run's completions again, on this machine, and compares the verdicts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from evalrun_api.run_config import Dataset, RunConfig, parse_run_config
from evalrun_attest.checks import OpenedRun
from evalrun_attest.run_files import RESULTS, RUN_INFO, grader_file, read_document, read_lines
from evalrun_cli.local.local_run import run_to_end
from evalrun_cli.local.options import LocalOptions
from evalrun_cli.local.run_session import RunSession
from evalrun_cli.local.start_settings import StartSettings
from evalrun_cli.local.workspace import create
from evalrun_cli.terminal import open_console
from evalrun_data.formats.record import make_problem_record
from evalrun_data.records import Problem

ResultRow = Mapping[str, Any]

_FROM_RUN: Final = ("judgeMode", "functionTests", "stopAfterTimeouts", "comparator", "limits", "maxAnswerCharacters")
"""Settings of a dataset that verdicts depend on."""
_LIMITED: Final = ("timeout", "assumed_timeout", "memory_limit")
NEAR_LIMIT: Final = 0.5
"""Share of the CPU time at which the other side was stopped. A test that used more may end differently on a slower
machine."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A verdict that differs when judged again."""

    name: str
    """Dataset, problem and sample."""
    text: str
    may_vary: bool
    """Whether such a verdict is known to depend on the machine or on chance."""


@dataclass(frozen=True, slots=True)
class JudgedAgain:
    """Outcome of judging drawn rows again."""

    same: int
    differences: Sequence[Difference]
    not_judged: Sequence[str]
    """Rows that this machine could not judge, with the reason."""
    left_out: Sequence[str]
    """Rows that were not judged in the first place, or whose problem is missing here."""
    judge: Mapping[str, Any]
    """Description that this machine's judge gives of itself."""


def judge_again(
    run: OpenedRun,
    rows: Sequence[ResultRow],
    problems: Mapping[str, Sequence[Problem]],
    folder: Path,
    options: LocalOptions,
) -> JudgedAgain:
    """Judge rows again. Rows that differ are judged a second time, to see whether their verdict varies by itself.

    Args:
        run: the run.
        rows: rows of its results.
        problems: problems by dataset.
        folder: an empty directory for the judging.
        options: how programs are judged on this machine.

    Raises:
        BadInputError: this machine cannot judge.
    """
    run_info = read_document(run.folder / RUN_INFO)
    settings = {each["name"]: each for each in run_info["spec"]["datasets"]}
    known = {(name, problem.problem_id): problem for name, each in problems.items() for problem in each}
    judged, left_out = [], []
    for row in rows:
        key = (row["dataset"], row["problem_id"])
        if key not in known or not row["judged"] or settings[row["dataset"]].get("judgeMode") == "Submit":
            left_out.append(name_row(row))
        else:
            judged.append(row)
    batch = _Batch(run, settings, known, options)
    first, judge = batch.judge(judged, folder / "first")
    suspects = [row for row, now in zip(judged, first, strict=True) if now["judged"] and changes(row, now)]
    second, _ = batch.judge(suspects, folder / "second")
    varying = {name_row(row) for row, now in zip(suspects, second, strict=True) if not changes(row, now)}
    differences, not_judged = [], []
    for row, now in zip(judged, first, strict=True):
        if not now["judged"]:
            not_judged.append(f"{name_row(row)}: {now['not_judged_reason']}")
        elif found := changes(row, now):
            by_itself = name_row(row) in varying
            text = "; ".join(found) + (" (and the same again when judged once more)" if by_itself else "")
            differences.append(Difference(name_row(row), text, by_itself or is_near_limit(row, now)))
    same = len(judged) - len(differences) - len(not_judged)
    return JudgedAgain(same, differences, not_judged, left_out, judge)


@dataclass(frozen=True)
class _Batch:
    run: OpenedRun
    settings: Mapping[str, Mapping[str, Any]]
    problems: Mapping[tuple[str, str], Problem]
    options: LocalOptions

    def judge(self, rows: Sequence[ResultRow], folder: Path) -> tuple[list[ResultRow], Mapping[str, Any]]:
        """Return the new rows, in the same order, and the judge's description of itself."""
        if not rows:
            return [], {}
        folder.mkdir()
        workspace = create(folder / "run", self._config(rows, folder))
        StartSettings.from_options(self.options).write(workspace.directory)
        quiet = RunSession(console=open_console(quiet=True), progress=open_console(stderr=True, quiet=True))
        run_to_end(workspace, self.options, None, quiet)
        found = {}
        for _, row in read_lines(workspace.directory / RESULTS):
            found[row["dataset"], row["problem_id"], row["sample"]] = row
        judges = read_document(workspace.directory / RUN_INFO)["judges"]
        return [found[key] for key, _ in _number_rows(rows)], next(iter(judges.values()), {})

    def _config(self, rows: Sequence[ResultRow], folder: Path) -> RunConfig:
        answers = folder / "answers.jsonl"
        with answers.open("w", encoding="utf-8") as file:
            for (dataset, problem_id, sample), row in _number_rows(rows):
                answer = {name: row[name] for name in ("response", "mode", "language", "finish_reason")}
                keyed = {"dataset": dataset, "problem_id": problem_id, "sample": sample, **answer}
                file.write(json.dumps(keyed) + "\n")
        names = dict.fromkeys(row["dataset"] for row in rows)
        datasets = [self._dataset(index, name, rows, folder) for index, name in enumerate(names)]
        model = {"path": "answers-judged-again"}
        return parse_run_config(
            {
                "run": "verify",
                "created": datetime.now(UTC),
                "spec": {"model": model, "datasets": datasets},
                "responses": [str(answers)],
                "answers_per_problem": "AsGiven",
                "base_dir": folder,
                "output_dir": str(folder / "run"),
            },
            "verify",
        )

    def _dataset(self, index: int, name: str, rows: Sequence[ResultRow], folder: Path) -> Mapping[str, Any]:
        ids = dict.fromkeys(row["problem_id"] for row in rows if row["dataset"] == name)
        source = folder / f"problems-{index}.jsonl"
        source.write_text("".join(json.dumps(make_problem_record(self.problems[name, each])) + "\n" for each in ids))
        given = self.settings[name]
        dataset = {"name": name, "source": str(source), **{key: given[key] for key in _FROM_RUN if key in given}}
        if (grader := given.get("grader")) is not None:
            file = self.run.folder / grader_file(name)
            dataset["grader"] = {**grader, "path": str(file)} if file.is_file() else grader
        return Dataset.model_validate(dataset).to_wire()


def _number_rows(rows: Sequence[ResultRow]) -> list[tuple[tuple[str, str, int], ResultRow]]:
    """Number the rows of each problem: turns and noise-floor repeats count as samples here."""
    counts: dict[tuple[str, str], int] = {}
    numbered = []
    for row in rows:
        problem = (row["dataset"], row["problem_id"])
        counts[problem] = counts.get(problem, -1) + 1
        numbered.append(((*problem, counts[problem]), row))
    return numbered


def name_row(row: ResultRow) -> str:
    """Return the name of a row: dataset, problem, sample, and turn and noise-floor repeat where there are several."""
    more = "".join(f", {part} {row[part]}" for part in ("turn", "repeat") if row.get(part))
    return f"{row['dataset']} {row['problem_id']}#{row['sample']}{more}"


def changes(before: ResultRow, now: ResultRow) -> list[str]:
    """Describe how a verdict differs, its outcome first and then its tests; empty if nothing differs."""
    found = [
        f"{name} was {before.get(name)!r}, is {now.get(name)!r}"
        for name in ("accepted", "final_status", "score")
        if before.get(name) != now.get(name)
    ]
    old, new = _statuses(before), _statuses(now)
    if len(old) != len(new):
        found.append(f"it had {len(old)} tests, has {len(new)}")
    found += [
        f"test {index}: was {was}, is {became}"
        for index, (was, became) in enumerate(zip(old, new, strict=False))
        if was != became
    ]
    return found


def is_near_limit(before: ResultRow, now: ResultRow) -> bool:
    """Return whether every differing test was stopped at a limit on one side and ended near it on the other."""
    pairs = list(zip(before["tests"], now["tests"], strict=False))
    different = [(old, new) for old, new in pairs if old["status"] != new["status"]]
    return bool(different) and all(_near(old, new) or _near(new, old) for old, new in different)


def _near(stopped: ResultRow, other: ResultRow) -> bool:
    if stopped["status"] not in _LIMITED:
        return False
    if stopped["status"] == "memory_limit":
        # The memory use of the other side is not recorded.
        return True
    return bool(other["cpu_time"] >= NEAR_LIMIT * stopped["cpu_time"] or other["status"] in _LIMITED)


def _statuses(row: ResultRow) -> list[str]:
    return [str(test["status"]) for test in row.get("tests") or ()]
