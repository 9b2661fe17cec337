"""The prompts of a run's problems, as they were sent, in a file that is read by range: one line of JSON per problem."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Final

from evalrun_aggregator.start.datasets import load_datasets
from evalrun_api.run_config import RunConfig
from evalrun_cli.local.workspace import Workspace, order_in
from evalrun_data.sources import local_path
from evalrun_results.samples import JsonObject
from evalrun_runtime.atomic_files import atomic_file

PROMPTS: Final = "prompts.jsonl"
PROMPT_INDEX: Final = "prompts.json"


def write_prompts(run: Path, directory: Path) -> bool:
    """Write the prompts of the run in a directory on this machine, and where each one lies.

    Nothing is fetched: a dataset elsewhere leaves the page without prompts. Return whether they were written.

    Raises:
        BadInputError: a source cannot be read.
    """
    if (directory / PROMPT_INDEX).exists():
        return True
    if not Workspace(run).work_order.is_file():
        return False
    order = order_in(run)
    if not _is_here(order):
        return False
    places: list[JsonObject] = []
    end = 0
    with atomic_file(directory / PROMPTS) as target:
        for dataset in load_datasets(order.spec, order.base_dir, order.sources):
            for problem in dataset.problems:
                messages = [asdict(message) for message in dataset.messages(problem)]
                line = json.dumps({"messages": messages}).encode() + b"\n"
                target.write(line)
                places.append({"dataset": dataset.spec.name, "problem": problem.problem_id, "place": [end, len(line)]})
                end += len(line)
    with atomic_file(directory / PROMPT_INDEX) as target:
        target.write(json.dumps(places).encode())
    return True


def _is_here(order: RunConfig) -> bool:
    named = [dataset.source for dataset in order.spec.datasets]
    named += [source for sources in order.sources.values() for source in sources]
    return all(name.startswith("builtin:") or local_path(name, order.base_dir) is not None for name in named)
