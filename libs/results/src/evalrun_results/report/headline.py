"""The top of the report: what the run was, its state, its gate, and the figures of each dataset at a glance. Pure."""

from datetime import datetime
from typing import Final

from evalrun_results.comparisons.roles import role_in
from evalrun_results.report import quantities as shown
from evalrun_results.report.json_access import Json, amount, count, inside, mapping, text
from evalrun_results.report.markup import Child, Markup, element, joined
from evalrun_results.report.plots import interval_bar

NAMED: Final = {"solved_within_budget": "Solved within budget", "recovery_rate": "Recovery rate"}
"""Figures that a protocol asks for, with their headings."""

GATE_CLASS = {"PASS": "success", "FAIL": "runtime_error", "INCONCLUSIVE": "wrong_answer"}


def title_of(run_info: Json) -> str:
    """Return the page's title."""
    return f"{text(run_info, 'run') or 'evaluation'} · {text(run_info, 'spec', 'model', 'path') or 'unknown model'}"


def headline(summary: Json, run_info: Json) -> Markup:
    """Return the top of the page."""
    state = text(summary, "state")
    state_class = {"Succeeded": "success", "Degraded": "wrong_answer"}.get(state, "runtime_error")
    facts = [text(run_info, "spec", "model", "path"), _protocol(run_info), _when(run_info), _containment(run_info)]
    return joined(
        element(
            "div",
            element("h1", text(run_info, "run") or "Evaluation"),
            element("span", state or "unknown state", class_=f"pill {state_class}"),
            class_="head",
        ),
        element("p", " · ".join(fact for fact in facts if fact), class_="quiet"),
        _lineage(mapping(run_info, "spec", "lineage")),
        _degraded(summary),
        _warnings(summary),
        _gate(mapping(summary, "gate")),
        _table(mapping(summary, "datasets"), run_info),
    )


def _table(datasets: Json, run_info: Json) -> Markup:
    if not datasets:
        return element("p", "The run has no results: nothing was generated or judged.", class_="notice")
    passes = sorted(
        {name for each in datasets for name in mapping(datasets, each, "metrics") if name.startswith("pass_at_")},
        key=lambda name: (len(name), name),
    )
    asked = [name for name in passes if name != "pass_at_1"]  # the same figure as accepted@1
    for name in NAMED:
        if any(name in mapping(datasets, each, "metrics") for each in datasets):
            asked.insert(0, name)
    floors = any(amount(datasets, each, "metrics", "flip_rate", "value") is not None for each in datasets)
    headings = ["Dataset", "accepted@1"]
    headings += [NAMED.get(name, name.replace("pass_at_", "pass@")) for name in asked]
    headings += ["Pass ratio", "Runs to its end", "Coverage", "Tokens a problem", "Judge CPU a problem"]
    headings += ["Noise floor"] * floors
    rows = [
        _row(name, role_in(run_info, name), mapping(datasets, name), asked, headings, floors=floors)
        for name in datasets
    ]
    head = element("thead", element("tr", [element("th", heading) for heading in headings]))
    return element("div", element("table", head, element("tbody", rows), class_="headline"), class_="wide")


def _row(name: str, role: str, dataset: Json, asked: list[str], headings: list[str], *, floors: bool) -> Markup:
    metrics, counts = mapping(dataset, "metrics"), mapping(dataset, "counts")
    samples, problems = count(counts, "samples"), count(counts, "problems")
    size = f"{problems} problems" if samples == problems else f"{problems} problems, {samples} answers"
    size += f", role: {role}" if role else ""
    cells: list[Child] = [joined(element("b", name), element("small", size)), _share(metrics, "accepted_at_1")]
    cells += [_share(metrics, each, count(counts, "left_out_problems", each)) for each in asked]
    cells += [_plain(metrics, "pass_ratio_mean"), _plain(metrics, "exec_success_rate"), _coverage(dataset)]
    cells += [_plain(metrics, "avg_total_gen_tokens"), _plain(metrics, "avg_total_judge_time")]
    cells += [_plain(metrics, "flip_rate")] if floors else []
    return element("tr", [element("td", cell, data_label=label) for cell, label in zip(cells, headings, strict=True)])


def _share(metrics: Json, name: str, left_out: int = 0) -> Markup:
    """Return a figure with its interval. left_out: problems that it could not be told of."""
    value, low, high = (amount(metrics, name, part) for part in ("value", "low", "high"))
    without = f"; {left_out} problems left out" if left_out else ""
    return joined(
        element("b", shown.percent(value), class_="big"),
        interval_bar(value, low, high),
        element("small", f"{interval_text(name, metrics)}{without}"),
    )


def _plain(metrics: Json, name: str) -> Markup:
    value = amount(metrics, name, "value")
    return joined(shown.figure(name, value), element("small", interval_text(name, metrics)))


def interval_text(name: str, metrics: Json) -> str:
    """Return a figure's interval; what is unbounded says so."""
    value, low, high = (amount(metrics, name, part) for part in ("value", "low", "high"))
    if value is None:
        return "not known"
    if low is None and high is None:
        because = text(metrics, name, "no_interval_because")
        return f"no interval: {because}" if because else ""
    ends = [shown.figure(name, bound) if bound is not None else "unbounded" for bound in (low, high)]
    high_bound = amount(metrics, name, "high_bound")
    tail = "" if high_bound is None else f"; {shown.figure(name, high_bound)} had every assumed time-out passed"
    return f"{ends[0]} to {ends[1]}{tail}"


def _coverage(dataset: Json) -> Markup:
    judged, samples = count(dataset, "counts", "judged"), count(dataset, "counts", "samples")
    bounds = inside(dataset, "accepted_bounds")
    between = ""
    if judged < samples and isinstance(bounds, list) and len(bounds) == 2:
        low, high = (number if isinstance(number, int | float) else None for number in bounds)
        between = f"; accepted@1 lies from {shown.percent(low)} to {shown.percent(high)}"
    return joined(
        shown.percent(amount(dataset, "coverage")), element("small", f"{judged} of {samples} judged{between}")
    )


def _degraded(summary: Json) -> Markup | None:
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
        lines.append(f"{repeats} answers of noise-floor passes could not be judged: the noise floor does without them.")
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
    """Return which checkpoint of which training the run evaluated."""
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


def _when(run_info: Json) -> str:
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
