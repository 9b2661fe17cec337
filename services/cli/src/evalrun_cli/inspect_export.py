"""`evalrun export inspect`: writes the samples of a running or ended run as logs of Inspect, one per dataset."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click
import pyarrow.compute

from evalrun_aggregator.finish.sample_stream import prompt_text
from evalrun_aggregator.ledger.place import is_in_use
from evalrun_aggregator.start.datasets import RunDataset, load_datasets
from evalrun_api.run_config import EvalRunSpec
from evalrun_cli.local.workspace import Workspace, order_in
from evalrun_cli.samples.run_samples import RunSamples, open_samples
from evalrun_data.records import Problem, Reference
from evalrun_results.inspect_log.header import LoggedRun, Status
from evalrun_results.inspect_log.log_file import write_log
from evalrun_results.inspect_log.samples import COLUMNS, AskedProblem, Row, make_sample, utc_time
from evalrun_results.retention import check_answers_kept
from evalrun_results.samples import JsonObject
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.atomic_files import atomic_file
from evalrun_runtime.distribution import read_own_version
from evalrun_runtime.exits import BadInputError, ExitCode

SUFFIX: Final = ".eval"
_ROWS: Final = 64
"""Rows of a batch that are converted to Python objects at a time."""
_OF_RUN: Final = ("containment_levels", "versions", "seeds", "partial")
"""Fields of run_info.json that go into the log's metadata."""


def export_inspect(place: str, output: Path, dataset: str | None, *, with_tests: bool) -> ExitCode:
    """Write the logs of a run.

    Args:
        place: directory of a run, or URL of its outputs.
        output: a file, or a directory for a file per dataset.
        dataset: name of the only dataset to write; None: all.
        with_tests: whether the texts of failed tests and the references of graders go into the logs.

    Raises:
        BadInputError: the run cannot be read, or the output cannot be written.
    """
    check_answers_kept(place)
    samples = open_samples(place)
    logged = _describe_runs(place)
    targets = _targets(output, [run.dataset for run in logged], dataset)
    asked = _read_datasets(place)
    for run in logged:
        if (path := targets.get(run.dataset)) is None:
            continue
        problems = _Problems(asked.get(run.dataset), with_tests=with_tests)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as file:
                totals = write_log(file, run, _samples(samples, run, problems, with_tests=with_tests))
        except OSError as error:
            raise BadInputError(f"--output {path}: {error.strerror or error}") from error
        click.echo(f"{path}: {totals.samples} samples")
    return ExitCode.SUCCEEDED


def _targets(output: Path, names: Sequence[str], dataset: str | None) -> Mapping[str, Path]:
    """Return the file of each dataset that is written. Raises BadInputError."""
    if dataset is not None and dataset not in names:
        raise BadInputError(f"--dataset {dataset}: the run has {', '.join(names)}")
    chosen = [dataset] if dataset is not None else names
    if output.suffix != SUFFIX:
        if output.is_file():
            raise BadInputError(f"--output {output}: write a name that ends in {SUFFIX}, or a directory")
        return {name: output / f"{quote(name, safe='')}{SUFFIX}" for name in chosen}
    if len(chosen) != 1:
        raise BadInputError(
            f"--output {output}: a log holds one dataset, and the run has {', '.join(names)}: name a directory, or one "
            "of them with --dataset"
        )
    return {chosen[0]: output}


def _describe_runs(place: str) -> list[LoggedRun]:
    if "://" not in place and not Workspace(Path(place)).summary.is_file() and Workspace(Path(place)).ledger.exists():
        return _describe_running(Path(place).resolve())
    run = StoredRun.open(place)
    info: Mapping[str, Any] = run.run_info
    summary: Mapping[str, Any] = run.summary
    status: Status = "error" if summary.get("partial") else "success"
    more = {
        "state": summary["state"],
        "warnings": summary.get("warnings"),
        "stopped_early": summary.get("stoppedEarly"),
        **{name: info.get(name) for name in _OF_RUN},
    }
    return [
        LoggedRun(
            run=info["run"],
            dataset=name,
            model=_name_model(info["spec"]["model"]),
            created=info["created"],
            started=info["started_at"],
            ended=info["ended_at"],
            status=status,
            evalrun=info["versions"]["evalrun"],
            protocol=info["spec"].get("protocol") or {},
            summary=dataset,
            metadata={key: value for key, value in more.items() if value},
            error=summary.get("partial") or "",
        )
        for name, dataset in summary["datasets"].items()
    ]


def _describe_running(directory: Path) -> list[LoggedRun]:
    """Describe a run that has not ended, without metrics."""
    order = order_in(directory)
    is_live = is_in_use(Workspace(directory).ledger)
    created = order.created.astimezone(UTC).isoformat()
    return [
        LoggedRun(
            run=order.run,
            dataset=dataset.name,
            model=_name_model(order.spec.model.model_dump()),
            created=created,
            started=created,
            ended="" if is_live else utc_time(Workspace(directory).ledger.stat().st_mtime),
            status="started" if is_live else "cancelled",
            evalrun=read_own_version(),
            protocol=_dump_protocol(order.spec) if order.responses is None else {},
            summary=None,
            metadata={"state": "Running" if is_live else "Stopped"},
        )
        for dataset in order.spec.datasets
    ]


def _dump_protocol(spec: EvalRunSpec) -> Mapping[str, Any]:
    return spec.protocol.model_dump(by_alias=True)


def _name_model(model: Mapping[str, Any]) -> str:
    return str(model.get("adapter") or model["path"])


def _read_datasets(place: str) -> Mapping[str, RunDataset]:
    """Return the datasets of a run by name.

    Datasets that cannot be read are left out with a message, because a completion is useful without its prompt.
    """
    if "://" in place or not Workspace(Path(place)).work_order.is_file():
        click.echo(f"{place}: the logs have no prompts: only the directory in which it ran names its data", err=True)
        return {}
    order = order_in(Path(place).resolve())
    try:
        return {each.spec.name: each for each in load_datasets(order.spec, order.base_dir, order.sources)}
    except BadInputError as error:
        click.echo(f"{place}: the logs have no prompts: {error}", err=True)
        return {}


class _Problems:
    """Facts that a dataset contains about its problems."""

    def __init__(self, dataset: RunDataset | None, *, with_tests: bool) -> None:
        self._dataset = dataset
        self._with_tests = with_tests
        self._by_id = {} if dataset is None else {problem.problem_id: problem for problem in dataset.problems}

    def describe_problem(self, problem_id: str) -> AskedProblem:
        """Return the prompt and the reference; empty texts if unknown."""
        problem = self._by_id.get(problem_id)
        if problem is None or self._dataset is None:
            return AskedProblem()
        messages = self._dataset.messages(problem)
        is_chat = self._dataset.spec.prompt_format == "Chat"
        return AskedProblem(
            prompt=problem.prompt,
            messages=tuple(asdict(message) for message in messages) if is_chat else (),
            sent=prompt_text(messages),
            difficulty=problem.difficulty,
            tags=problem.tags,
            reference=_find_reference(problem) if self._with_tests else "",
        )


def _find_reference(problem: Problem) -> str:
    truth = problem.ground_truth
    if not isinstance(truth, Reference):
        return ""
    value = json.loads(truth.ground_truth)
    return value if isinstance(value, str) else truth.ground_truth


def _samples(samples: RunSamples, run: LoggedRun, problems: _Problems, *, with_tests: bool) -> Iterator[JsonObject]:
    """Yield the samples of a dataset. Turns of a completion are neighbours in every run's outputs."""
    rows = (row for row in _rows(samples, run.dataset) if not row["repeat"])
    for (problem_id, _), turns in itertools.groupby(rows, key=lambda row: (row["problem_id"], row["sample"])):
        found = sorted(turns, key=lambda row: row["turn"] or 0)
        yield make_sample(
            found,
            problems.describe_problem(problem_id),
            run.run_id,
            with_tests=with_tests,
            has_ended=run.summary is not None,
        )


def _rows(samples: RunSamples, dataset: str) -> Iterator[Row]:
    for batch in samples.read(COLUMNS):
        chosen = batch.filter(pyarrow.compute.equal(batch.column("dataset"), dataset))
        for start in range(0, chosen.num_rows, _ROWS):
            yield from chosen.slice(start, _ROWS).to_pylist()
