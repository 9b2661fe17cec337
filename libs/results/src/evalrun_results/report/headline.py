"""The top of the report: the run, its state, its gate, and the metrics of each dataset. Pure."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final

from evalrun_registry.metric import Measured, Table
from evalrun_registry.metrics import METRICS, shown_in
from evalrun_results.comparisons.roles import role_in
from evalrun_results.repeated_figures import find_repeated_figures
from evalrun_results.report import quantities as shown
from evalrun_results.report.json_access import Json, amount, count, inside, mapping, text
from evalrun_results.report.markup import Markup, element, joined, make_scrollable
from evalrun_results.report.plots import draw_interval_bar

COVERAGE_RANK: Final = 7
"""The place of the coverage among the ranks of the metrics' columns."""
GATE_CLASS = {"PASS": "success", "FAIL": "runtime_error", "INCONCLUSIVE": "wrong_answer"}


def render_title(run_info: Json) -> str:
    """Return the page's title."""
    return f"{text(run_info, 'run') or 'evaluation'} · {text(run_info, 'spec', 'model', 'path') or 'unknown model'}"


def headline(summary: Json, run_info: Json) -> Markup:
    """Return the top of the page."""
    state = text(summary, "state")
    state_class = {"Succeeded": "success", "Degraded": "wrong_answer"}.get(state, "runtime_error")
    facts = [
        text(run_info, "spec", "model", "path"),
        _protocol(run_info),
        _render_end_time(run_info),
        _containment(run_info),
    ]
    return joined(
        element(
            "div",
            element("h1", text(run_info, "run") or "Evaluation"),
            element("span", state or "unknown state", class_=f"pill {state_class}"),
            element("span", "partial", class_="pill wrong_answer") if text(summary, "partial") else None,
            class_="head",
        ),
        element("p", " · ".join(fact for fact in facts if fact), class_="quiet"),
        _lineage(mapping(run_info, "spec", "lineage")),
        _render_not_judged(summary),
        _warnings(summary),
        _gate(mapping(summary, "gate")),
        _table(mapping(summary, "datasets"), run_info),
    )


def _table(datasets: Json, run_info: Json) -> Markup:
    if not datasets:
        return element("p", "The run has no results: nothing was generated or judged.", class_="notice")
    columns = _columns(datasets)
    headings = ["Dataset", *(heading for heading, _ in columns)]
    rows = []
    for name in datasets:
        dataset = mapping(datasets, name)
        cells = [_name(name, role_in(run_info, name), dataset), *(cell(dataset) for _, cell in columns)]
        rows.append(
            element("tr", [element("td", cell, data_label=label) for cell, label in zip(cells, headings, strict=True)])
        )
    head = element("thead", element("tr", [element("th", heading, scope="col") for heading in headings]))
    return make_scrollable(element("table", head, element("tbody", rows), class_="headline"))


def _columns(datasets: Json) -> list[tuple[str, Callable[[Json], Markup]]]:
    """Return the heading of each column with the function that writes its cell for a dataset's entry in
    summary.json."""
    standard = [metric.name for metric in METRICS if metric.measured is Measured.ALWAYS]
    repeated = find_repeated_figures(datasets)
    reported = [metric for each in datasets for metric in mapping(datasets, each, "metrics")]
    found: list[tuple[int, str, Callable[[Json], Markup]]] = [
        (column.rank, metric.render_heading(column), partial(_share if column.prominent else _plain, metric.name))
        for metric, column in shown_in(Table.HEADLINE, [*standard, *reported])
        if metric.name not in repeated
    ]
    found.append((COVERAGE_RANK, "Coverage", _coverage))
    return [(heading, cell) for _, heading, cell in sorted(found, key=lambda column: column[0])]


def _name(name: str, role: str, dataset: Json) -> Markup:
    samples, problems = count(dataset, "counts", "samples"), count(dataset, "counts", "problems")
    size = f"{problems} problems" if samples == problems else f"{problems} problems, {samples} answers"
    size += f", role: {role}" if role else ""
    return joined(element("b", name), element("small", size))


def _share(name: str, dataset: Json) -> Markup:
    """Return a figure with its interval, and the number of problems for which it is not known."""
    metrics, left_out = mapping(dataset, "metrics"), count(dataset, "counts", "left_out_problems", name)
    value, low, high = (amount(metrics, name, part) for part in ("value", "low", "high"))
    without = f"; {left_out} problems left out" if left_out else ""
    together, judged = count(dataset, "counts", "judged_together"), count(dataset, "counts", "judged")
    return joined(
        element("b", shown.percent(value), class_="big"),
        draw_interval_bar(value, low, high),
        element("small", f"{interval_text(name, metrics)}{without}"),
        element("small", f"{shown.percent(together / judged)} judged together: can be forged") if together else None,
    )


def _plain(name: str, dataset: Json) -> Markup:
    metrics = mapping(dataset, "metrics")
    value = amount(metrics, name, "value")
    return joined(shown.figure(name, value), element("small", interval_text(name, metrics)))


def interval_text(name: str, metrics: Json) -> str:
    """Return a metric's interval, naming unbounded ends."""
    value, low, high = (amount(metrics, name, part) for part in ("value", "low", "high"))
    if value is None:
        return "not known"
    if low is None and high is None:
        because = text(metrics, name, "no_interval_because")
        return f"no interval: {because}" if because else ""
    ends = [shown.figure(name, bound) if bound is not None else "unbounded" for bound in (low, high)]
    high_bound = amount(metrics, name, "high_bound")
    tail = "" if high_bound is None else f"; {shown.figure(name, high_bound)} had every assumed timeout passed"
    return f"{ends[0]} to {ends[1]}{tail}"


def _coverage(dataset: Json) -> Markup:
    judged, samples = count(dataset, "counts", "judged"), count(dataset, "counts", "samples")
    bounds = inside(dataset, "accepted_bounds")
    between = ""
    if judged < samples and isinstance(bounds, list) and len(bounds) == 2:
        low, high = (number if isinstance(number, int | float) else None for number in bounds)
        between = f"; pass@1 lies from {shown.percent(low)} to {shown.percent(high)}"
    return joined(
        shown.percent(amount(dataset, "coverage")), element("small", f"{judged} of {samples} judged{between}")
    )


def _render_not_judged(summary: Json) -> Markup | None:
    names = ("not_judged", "not_judged_repeats", "not_judged_later_turns")
    missing, repeats, turns = (count(summary, "counts", name) for name in names)
    lines = []
    causes = [
        element("li", f"{name}: {cause} ({number})")
        for name, dataset in mapping(summary, "datasets").items()
        for cause, number in mapping(dataset, "counts", "not_judged_causes").items()
    ]
    if missing:
        lines.append(
            f"{missing} answers could not be judged. They count neither for nor against the model; coverage says how "
            "many stand behind each figure."
        )
    if repeats:
        lines.append(
            f"{repeats} answers of noise-floor repeats could not be judged: the noise floor does without them."
        )
    if turns:
        lines.append(
            f"{turns} answers of later turns could not be judged: figures from their turn on leave out their samples."
        )
    if not lines:
        return None
    return element("div", " ".join(lines), element("ul", causes) if causes else None, class_="notice")


def _warnings(summary: Json) -> Markup | None:
    lines = inside(summary, "warnings")
    if not isinstance(lines, list) or not lines:
        return None
    return element(
        "div", element("b", "Warnings"), element("ul", [element("li", str(line)) for line in lines]), class_="notice"
    )


def _gate(gate: Json) -> Markup | None:
    if not gate:
        return None
    decision = text(gate, "decision")
    return element(
        "div",
        element("b", "Gate "),
        element("span", decision, class_=f"pill {GATE_CLASS.get(decision, '')}"),
        f" {text(gate, 'message') or text(gate, 'reason')}",
        element("p", f"Baseline: {text(gate, 'baseline')}", class_="quiet"),
        class_="panel",
    )


def _lineage(lineage: Json) -> Markup | None:
    """Return the training and the checkpoint that the run evaluated."""
    words = (("step", "step"), ("phase", "phase"), ("schedule", "schedule"), ("parent", "after"))
    parts = [f"{word} {value}" for name, word in words if (value := text(lineage, name))]
    return element("p", f"Checkpoint: {' · '.join(parts)}", class_="quiet") if parts else None


def _protocol(run_info: Json) -> str:
    protocol = mapping(run_info, "spec", "protocol")
    if inside(run_info, "responses") is not None:
        return "answers made elsewhere"
    if not protocol:
        return ""
    samples = count(protocol, "samples")
    many = f", {samples} samples a problem" if samples > 1 else ""
    return f"{text(protocol, 'name')}, temperature {text(protocol, 'temperature')}{many}"


def _render_end_time(run_info: Json) -> str:
    started, ended = _time(text(run_info, "started_at")), _time(text(run_info, "ended_at"))
    if ended is None:
        return ""
    took = "" if started is None else f", {shown.seconds((ended - started).total_seconds())}"
    return f"{ended:%Y-%m-%d %H:%M} UTC{took}"


def _time(written: str) -> datetime | None:
    try:
        return datetime.fromisoformat(written)
    except ValueError:
        return None


def _containment(run_info: Json) -> str:
    levels = inside(run_info, "containment_levels")
    return f"containment: {', '.join(map(str, levels))}" if isinstance(levels, list) and levels else ""
