"""`evalrun export`: reads a run with its problems, and writes rows for training."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from evalrun_aggregator.start.datasets import RunDataset, load_datasets
from evalrun_cli.local.workspace import order_in
from evalrun_data.governance.record_tables import verl_row
from evalrun_data.records import Problem
from evalrun_results.retention import check_answers_kept
from evalrun_results.samples import SampleResult
from evalrun_results.stored_rows import TOTALS_COLUMNS
from evalrun_results.stored_run import StoredRun
from evalrun_results.training_examples import Answers, answers_by_problem
from evalrun_runtime.exits import BadInputError, ExitCode

Rows = Iterator[Mapping[str, Any]]
_COLUMNS: Final = (*TOTALS_COLUMNS, "response", "code", "difficulty", "model", "mode", "language")
_SUFFIXES: Final = (".parquet", ".jsonl")


def export_sft(run: Path, output: Path, per_problem: int) -> ExitCode:
    """Write accepted completions.

    Raises BadInputError if the run or a source cannot be read, or there is no such completion.
    """
    return _write(
        output,
        (
            {"prompt": chat, "completion": [_answer(each)], **_origin(each)}
            for chat, _, answers in _iter_answered_problems(run, is_training=True)
            for each in answers.accepted[:per_problem]
        ),
        "no answer was accepted: draw more samples, or at a higher temperature",
    )


def export_pairs(run: Path, output: Path, per_problem: int) -> ExitCode:
    """Write pairs of completions. Raises BadInputError as `export_sft` does."""
    return _write(
        output,
        (
            {"prompt": chat, "chosen": [_answer(chosen)], "rejected": [_answer(rejected)], **_origin(chosen),
             "rejected_sample": rejected.sample, "rejected_status": rejected.final_status}
            for chat, _, answers in _iter_answered_problems(run, is_training=True)
            for chosen, rejected in answers.pairs(per_problem)
        ),
        "no problem has both an accepted and a rejected answer: draw several samples per problem",
    )  # fmt: skip


def export_verl(run: Path, output: Path, agent_name: str | None, interaction: str | None) -> ExitCode:
    """Write problems with all their completions in verl's layout. Raises BadInputError as `export_sft` does."""
    return _write(output, _verl_rows(run, agent_name, interaction), "the run has no answers")


def _verl_rows(run: Path, agent_name: str | None, interaction: str | None) -> Rows:
    for index, (chat, problem, answers) in enumerate(_iter_answered_problems(run, is_training=False)):
        row = {**verl_row(problem, index, ""), "prompt": chat}
        row["responses"] = [each.response for each in answers.every]
        if agent_name is not None:
            row["agent_name"] = agent_name
        if interaction is not None:
            truth = row["reward_model"]["ground_truth"]
            kwargs = {"name": interaction, "query": problem.prompt, "ground_truth": truth}
            row["extra_info"] = {**row["extra_info"], "interaction_kwargs": kwargs}
        yield row


def _iter_answered_problems(run: Path, *, is_training: bool) -> Iterator[tuple[list[dict[str, str]], Problem, Answers]]:
    """Yield each problem that has completions: its chat, the problem, and its completions.

    Raises:
        BadInputError: completions of evaluation data are requested for training, or the run cannot be read.
    """
    check_answers_kept(str(run))
    order = order_in(run.resolve())
    answers = answers_by_problem(StoredRun.open(str(run)).results(_COLUMNS))
    for dataset in load_datasets(order.spec, order.base_dir, order.sources):
        if is_training and dataset.role in ("dev", "test"):
            raise BadInputError(
                f"{run}: '{dataset.spec.name}' is {dataset.role} data, which figures and gates need unseen: sample a "
                "dataset of role train"
            )
        for problem in dataset.problems:
            if (found := answers.get((dataset.spec.name, problem.problem_id))) is not None:
                yield _chat(dataset, problem), problem, found


def _chat(dataset: RunDataset, problem: Problem) -> list[dict[str, str]]:
    return [asdict(message) for message in dataset.messages(problem)]


def _answer(result: SampleResult) -> dict[str, str]:
    return {"role": "assistant", "content": result.response}


def _origin(result: SampleResult) -> dict[str, object]:
    return {"dataset": result.dataset, "problem_id": result.problem_id, "sample": result.sample, "model": result.model}


def _write(output: Path, rows: Rows, nothing: str) -> ExitCode:
    if output.suffix not in _SUFFIXES:
        raise BadInputError(f"--output {output}: write a name that ends in {' or '.join(_SUFFIXES)}")
    found = list(rows)
    if not found:
        raise BadInputError(nothing)
    try:
        _store(output, found)
    except OSError as error:
        raise BadInputError(f"--output {output}: {error.strerror or error}") from error
    click.echo(f"{output}: {len(found)} rows")
    return ExitCode.SUCCEEDED


def _store(output: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    if output.suffix == ".jsonl":
        with output.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        return
    # Importing pyarrow costs 0.3 s.
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), output)
