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
    """Return the files of a model's repository by their path.

    Args:
        publication: the run.
        tasks: by dataset, where the hub has it.

    Raises:
        UnpublishableError: a dataset has no task, or none is in the run.
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
        entries = [_entry(publication, figure, task) for figure in publication.figures if figure.dataset == name]
        files[f".eval_results/{name}.yaml"] = yaml.safe_dump(entries[:1], sort_keys=False, allow_unicode=True)
    return files


def _entry(publication: Publication, figure: Figure, task: HubTask) -> dict[str, Any]:
    return {
        "dataset": {"id": task.dataset_id, "task_id": task.task_id},
        "value": round(100 * figure.value, PLACES),
        "date": publication.ended.isoformat(),
        "notes": f"pass@{figure.k}{_interval(figure)}, {figure.problems} problems, {publication.conditions}, judged by "
        f"evalrun {publication.evalrun}",
    }


def model_card_table(publication: Publication) -> str:
    """Return Markdown: a row per figure."""
    lines = ["| Benchmark | Metric | Value | 95 % interval | Problems |", "|---|---|---|---|---|"]
    for figure in publication.figures:
        interval = (
            "" if figure.low is None or figure.high is None else f"{_percent(figure.low)} to {_percent(figure.high)}"
        )
        lines.append(
            f"| {figure.dataset} | pass@{figure.k} | {_percent(figure.value)} % | {interval} | {figure.problems} |"
        )
    facts = f"{publication.conditions}. Judged by evalrun {publication.evalrun}, containment {publication.containment}."
    return "\n".join([*lines, "", facts[0].upper() + facts[1:], ""])


def _interval(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return ""
    return f", 95 % interval {_percent(figure.low)} to {_percent(figure.high)}"


def _percent(share: float) -> str:
    return f"{100 * share:.{PLACES}f}"
