"""Puts the report together. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from evalrun_results.json_text import json_document
from evalrun_results.metrics.problem_totals import DatasetTotals
from evalrun_results.report import quantities as shown
from evalrun_results.report.cost_section import cost_section
from evalrun_results.report.dataset_section import dataset_section
from evalrun_results.report.disagreements import Disagreements
from evalrun_results.report.headline import headline, render_title
from evalrun_results.report.json_access import Json, amount, inside, mapping, text
from evalrun_results.report.markup import Child, Markup, element, joined
from evalrun_results.report.page import make_foldable, page, table
from evalrun_results.report.qa_section import qa_section

NOT_KNOWN: Final = "not known: the answers were made elsewhere"


@dataclass(frozen=True, slots=True)
class ReportContent:
    """Inputs of a report."""

    summary: Json
    """Content of summary.json."""
    run_info: Json
    """Content of run_info.json."""
    totals: Mapping[str, DatasetTotals] = field(default_factory=dict)
    disagreements: Mapping[str, Disagreements] = field(default_factory=dict)
    qa: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    """The QA records, by dataset."""


def render_report(content: ReportContent) -> str:
    """Return report.html."""
    datasets = mapping(content.summary, "datasets")
    sections = [_dataset(name, mapping(datasets, name), content) for name in datasets]
    return page(
        render_title(content.run_info),
        joined(headline(content.summary, content.run_info), cost_section(content.summary)),
        sections,
        element("h2", "The run", id="run"),
        _run_table(content.run_info, content.summary),
        make_foldable(
            "run_info.json", element("pre", json_document(content.run_info, sort_keys=True).decode(), dir="ltr")
        ),
    )


def _dataset(name: str, dataset: Json, content: ReportContent) -> Markup:
    records = content.qa.get(name, ())
    return joined(
        element("h2", name, id=f"dataset-{name}"),
        dataset_section(name, dataset, content.totals.get(name), content.disagreements.get(name)),
        qa_section(records) if records else None,
    )


def _run_table(info: Json, summary: Json) -> Markup:
    protocol = mapping(info, "spec", "protocol")
    sampling = {
        "temperature": text(protocol, "temperature"), "top_p": text(protocol, "topP"),
        "samples": text(protocol, "samples"), "max new tokens": text(protocol, "maxNewTokens"),
        "seed": text(protocol, "seed"), "repeats": text(protocol, "noiseFloorRepeats"),
    }  # fmt: skip
    gpu = amount(info, "gpu_seconds")
    rows = {
        "Model": text(info, "spec", "model", "path"),
        "Protocol": text(protocol, "name"),
        "Sampling": NOT_KNOWN if inside(info, "responses") is not None else _pairs(sampling),
        "Answers from": _lines(inside(info, "responses")),
        "Servers": _replicas(inside(info, "replicas")),
        "Datasets": [
            element("div", f"{name}: {_pairs(mapping(info, 'datasets', name))}") for name in mapping(info, "datasets")
        ],
        "Judged by": [element("div", _pairs(mapping(info, "judges", name))) for name in mapping(info, "judges")],
        "Containment": _lines(inside(info, "containment_levels")),
        "Started": text(info, "started_at"),
        "Ended": text(info, "ended_at"),
        "GPU time": shown.seconds(gpu) if gpu else "",
        "Replicas without a request": _idle(mapping(summary, "generation")),
        "Versions": _pairs(mapping(info, "versions")),
        "Git revision of the spec's directory": text(info, "base_dir_git_revision"),
    }
    body: list[list[Child]] = [[element("b", name), value] for name, value in rows.items() if value]
    return table(["", ""], body) if body else element("p", "Nothing is known of the run.", class_="quiet")


def _idle(generation: Json) -> str:
    share = amount(generation, "idle_share")
    if share is None:
        return ""
    idle = shown.seconds(amount(generation, "idle_seconds"))
    return f"{shown.percent(share)} of the time between their first and last request ({idle} in all)"


def _pairs(values: Json) -> str:
    return ", ".join(f"{name} {_word(value)}" for name, value in values.items() if value not in (None, "", []))


def _word(value: object) -> str:
    if isinstance(value, list):
        return "/".join(map(str, value))
    written = str(value)
    return f"{written[:12]}…" if len(written) == 64 and written.isalnum() else written


def _lines(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else ""


def _replicas(value: object) -> list[Markup]:
    replicas = value if isinstance(value, list) else []
    return [element("div", f"{text(each, 'address')} serves {_lines(inside(each, 'models'))}") for each in replicas]
