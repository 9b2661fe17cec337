"""A run as the Hugging Face hub's `.eval_results/*.yaml`, and as a table for a model card. Pure.

Format: https://huggingface.co/docs/hub/eval-results
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from evalrun_results.publications.figures import Figure, Publication, UnpublishableError

PLACES = 2
"""Decimals of a percentage."""


@dataclass(frozen=True, slots=True)
class HubTask:
    """A benchmark on the hub."""

    dataset_id: str
    task_id: str


def hub_files(publication: Publication, tasks: Mapping[str, HubTask]) -> dict[str, str]:
    """Return the files to add to a model's repository: the content of each file by its path.

    Args:
        publication: the run.
        tasks: by dataset, where the hub has it.

    Raises:
        UnpublishableError: a dataset of the run has no task, or a task's dataset is not in the run.
    """
    names = dict.fromkeys(figure.dataset for figure in publication.figures)
    for name in names:
        if name not in tasks:
            raise UnpublishableError(
                f"{name}: which benchmark of the hub is it? --hub-dataset {name}=ORGANIZATION/DATASET:TASK"
            )
    if unknown := sorted(tasks.keys() - names.keys()):
        raise UnpublishableError(f"--hub-dataset {unknown[0]}: the run has {', '.join(names)}")
    files = {}
    for name, task in tasks.items():
        first = min((figure for figure in publication.figures if figure.dataset == name), key=lambda figure: figure.k)
        files[f".eval_results/{name}.yaml"] = yaml.safe_dump(
            [_entry(publication, first, task)], sort_keys=False, allow_unicode=True
        )
    return files


def _entry(publication: Publication, figure: Figure, task: HubTask) -> dict[str, Any]:
    interval = _interval(figure)
    said = f"pass@{figure.k}, 95 % interval {interval}" if interval else f"pass@{figure.k}"
    return {
        "dataset": {"id": task.dataset_id, "task_id": task.task_id},
        "value": round(100 * figure.value, PLACES),
        "date": publication.ended.isoformat(),
        "notes": f"{said}, {figure.problems} problems, {publication.conditions}, judged by "
        f"evalrun {publication.evalrun}",
    }


def model_card_table(publication: Publication) -> str:
    """Return Markdown: a row per figure."""
    lines = ["| Benchmark | Metric | Value | 95 % interval | Problems |", "|---|---|---|---|---|"]
    for figure in publication.figures:
        cells = (figure.dataset, f"pass@{figure.k}", f"{_percent(figure.value)} %", _interval(figure), figure.problems)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    facts = f"{publication.conditions}. Judged by evalrun {publication.evalrun}, containment {publication.containment}."
    return "\n".join([*lines, "", facts[0].upper() + facts[1:], ""])


def _interval(figure: Figure) -> str:
    return "" if figure.interval is None else " to ".join(map(_percent, figure.interval))


def _percent(share: float) -> str:
    return f"{100 * share:.{PLACES}f}"
