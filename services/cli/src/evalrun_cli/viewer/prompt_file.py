"""The prompts of a run's problems, as they were sent, in a file that is read by range: one line of JSON per problem."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from evalrun_aggregator.start.datasets import load_datasets
from evalrun_api.run_config import RunConfig
from evalrun_cli.local.workspace import Workspace, order_in
from evalrun_cli.viewer.run_catalog import is_inside
from evalrun_data.sources import BUILTIN_SCHEME, local_path
from evalrun_results.samples import JsonObject
from evalrun_runtime.atomic_files import atomic_file

PROMPTS: Final = "prompts.jsonl"
PROMPT_INDEX: Final = "prompts.json"


def write_prompts(run: Path, directory: Path, sources_in: Path | None = None) -> bool:
    """Write the prompts of a run on this machine, and an index of their places. Return whether both are there.

    Nothing is fetched: if a dataset is elsewhere, the page has no prompts.

    Args:
        run: directory of the run.
        directory: directory for the prompts and their index.
        sources_in: a directory that every file must lie in: the paths in a run are chosen by its author and are not
            trusted. None: anywhere.

    Raises:
        BadInputError: a source cannot be read.
    """
    stored = Workspace(run).work_order
    if (index := directory / PROMPT_INDEX).exists():
        # A copy keeps the modification time of its original, so the time at which the file came here is compared.
        if not stored.is_file() or stored.stat().st_ctime_ns <= index.stat().st_mtime_ns:
            return True
        index.unlink()
    if not stored.is_file():
        return False
    order = order_in(run)
    if not _is_here(order) or (sources_in is not None and not _lies_in(order, sources_in)):
        return False
    write_prompt_lines(_iter_prompts(order), directory)
    return True


def write_prompt_lines(prompts: Iterable[JsonObject], directory: Path) -> None:
    """Write prompts, and an index of their places by dataset and problem."""
    places: list[JsonObject] = []
    end = 0
    with atomic_file(directory / PROMPTS) as target:
        for prompt in prompts:
            line = json.dumps({"messages": prompt["messages"]}).encode() + b"\n"
            target.write(line)
            places.append({"dataset": prompt["dataset"], "problem": prompt["problem"], "place": [end, len(line)]})
            end += len(line)
    with atomic_file(directory / PROMPT_INDEX) as target:
        target.write(json.dumps(places).encode())


def _iter_prompts(order: RunConfig) -> Iterator[JsonObject]:
    for dataset in load_datasets(order.spec, order.base_dir, order.sources):
        for problem in dataset.problems:
            messages = [asdict(message) for message in dataset.messages(problem)]
            yield {"dataset": dataset.spec.name, "problem": problem.problem_id, "messages": [*messages]}


def _is_here(order: RunConfig) -> bool:
    named = _sources(order)
    return all(name.startswith(BUILTIN_SCHEME) or local_path(name, order.base_dir) is not None for name in named)


def _lies_in(order: RunConfig, directory: Path) -> bool:
    named = [name for name in _sources(order) if not name.startswith(BUILTIN_SCHEME)]
    for dataset in order.spec.datasets:
        named += [name for name in (dataset.prompt_template, dataset.manifest) if name is not None]
        named += [] if dataset.grader is None or dataset.grader.is_verls else [dataset.grader.path]
    files = [local_path(name, order.base_dir) for name in named]
    return all(file is not None and file.is_file() and is_inside(file, directory) for file in files)


def _sources(order: RunConfig) -> list[str]:
    named = [dataset.source for dataset in order.spec.datasets]
    return named + [source for sources in order.sources.values() for source in sources]
