"""`evalrun history`: reads the runs of a training's checkpoints and shows the curve over its steps."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
from rich import box
from rich.table import Table

from evalrun_cli.attestation.requirement import find_signer, read_trust
from evalrun_cli.attestation.trust_files import TrustFiles
from evalrun_cli.comparisons.history_page import history_page
from evalrun_cli.comparisons.views import plain, terminal, write
from evalrun_data.store_problems import name_read_errors
from evalrun_results.comparisons.history import Curve, HistoryRun, Point, curves, read_lineage
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.exits import BadInputError, ExitCode

if TYPE_CHECKING:
    from evalrun_attest.trust import Trust

PLOT_COLUMNS = 40
MAX_RUNS = 5000


def history(
    places: Sequence[str],
    *,
    metric: str,
    datasets: Sequence[str],
    view: str,
    output: Path | None,
    schedules: Sequence[str] = (),
    trust_config: Path | None = None,
) -> ExitCode:
    """Show the curves of the runs in some directories or URLs, each of which holds one run or many.

    Args:
        places: directories or URLs.
        metric: name of a metric in the runs' summaries.
        datasets: names of the datasets to show; empty: all.
        view: a key of `VIEWS`.
        output: a file; None: the terminal.
        schedules: names of schedules whose runs count; empty: all runs count.
        trust_config: configuration of a private instance of Sigstore, which vouches for identities; None: the public
            instance.

    Raises:
        BadInputError: there is no run, or no run names its step.
    """
    trust = None if trust_config is None else read_trust(TrustFiles(trust_config=trust_config))
    runs = [run for place in places for run in runs_below(place, trust)]
    # Several schedules may write to the same URL.
    if schedules:
        runs = [run for run in runs if read_lineage(run.run_info).get("schedule") in schedules]
    found, stepless = curves(runs, metric, datasets)
    if not found:
        what = f"no step of {', '.join(stepless[:3])} is known: write spec.lineage.step" if stepless else "no datasets"
        raise BadInputError(f"{len(runs)} runs, but nothing to plot: {what}")
    write(VIEWS[view](found, stepless), output)
    return ExitCode.SUCCEEDED


def is_name(place: str) -> bool:
    """Return whether a place can only be the name of an object in a cluster."""
    return re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", place) is not None and not Path(place).exists()


def runs_below(place: str, trust: "Trust | None" = None) -> list[HistoryRun]:
    """Return the run whose outputs are in a directory, else the runs in its subdirectories.

    Args:
        place: a directory or fsspec URL.
        trust: vouches for the identity of a signer; None: Sigstore's public instance.

    Raises:
        BadInputError: there is no run.
    """
    return [_open_run(each, trust) for each in places_below(place)]


def places_below(place: str) -> list[str]:
    """Return the places of the runs that `runs_below` returns, without reading the runs. Raises BadInputError if there
    is none."""
    if _is_run(place):
        return [place]
    found = [below for below in _below(place) if _is_run(below)]
    if not found:
        raise BadInputError(
            f"{place}: no summary.json here or in subfolders: name a run's outputs, or a directory of runs"
        )
    return found


def _open_run(place: str, trust: "Trust | None") -> HistoryRun:
    run = StoredRun.open(place)
    return HistoryRun(place, run.summary, run.run_info, find_signer(place, trust))


def _is_run(place: str) -> bool:
    with name_read_errors(place):
        store, path = fsspec.core.url_to_fs(place)
        return bool(store.exists(f"{path.rstrip('/')}/summary.json"))


def _below(place: str) -> Iterator[str]:
    with name_read_errors(place):
        store, path = fsspec.core.url_to_fs(place)
        found = store.ls(path, detail=True)
    names = sorted(item["name"].rstrip("/").rpartition("/")[2] for item in found if item["type"] == "directory")
    for name in names[:MAX_RUNS]:
        yield f"{place.rstrip('/')}/{name}"


def as_text(found: Sequence[Curve], stepless: Sequence[str]) -> str:
    """Return the curves for a terminal: a line per checkpoint, with its interval on a common scale."""
    console = terminal()
    with console.capture() as captured:
        for curve in found:
            console.print(_table(curve))
        for place in stepless:
            console.print(plain(f"left out: {place} says no step", style="yellow"), soft_wrap=True)
    return captured.get().rstrip("\n")


def as_markdown(found: Sequence[Curve], stepless: Sequence[str]) -> str:
    """Return the curves as Markdown tables."""
    lines = []
    for curve in found:
        lines += [f"### {title(curve)}", "", "| step | value | interval | judged | state |", "|---:|---:|---|---:|---|"]
        lines += [
            f"| {point.step} | {shown(point.value)} | {interval(point)} | {point.judged or ''} | {point.condition} |"
            for point in curve.points
        ]
        lines.append("")
    lines += [f"Left out: {place} says no step." for place in stepless]
    return "\n".join(lines).rstrip("\n")


def as_json(found: Sequence[Curve], stepless: Sequence[str]) -> str:
    """Return the curves as JSON."""
    return json.dumps({"curves": [asdict(curve) for curve in found], "without_step": list(stepless)}, indent=2)


def title(curve: Curve) -> str:
    """Return the title of a curve."""
    of = f"{curve.schedule}: " if curve.schedule else ""
    return f"{of}{curve.dataset}, {curve.metric}"


def shown(value: float | None) -> str:
    """Return a value as text; empty without a value."""
    return "" if value is None else f"{value:.4g}"


def interval(point: Point) -> str:
    """Return a point's interval as text; empty without an interval."""
    return "" if point.low is None or point.high is None else f"{point.low:.4g} to {point.high:.4g}"


def bounds(points: Sequence[Point]) -> tuple[float, float]:
    """Return the range of a curve's values and intervals."""
    values = [value for point in points for value in (point.low, point.value, point.high) if value is not None]
    return (min(values), max(values)) if values else (0.0, 1.0)


def drawn(point: Point, low: float, high: float, columns: int = PLOT_COLUMNS) -> str:
    """Return a point with its interval on a scale from low to high, in at most `columns` characters."""
    if point.value is None:
        return ""
    width = high - low

    def column(value: float) -> int:
        return round((columns - 1) * (value - low) / width) if width > 0 else (columns - 1) // 2

    marks = [" "] * columns
    if point.low is not None and point.high is not None:
        for place in range(column(point.low), column(point.high) + 1):
            marks[place] = "─"
    marks[column(point.value)] = "●"
    return "".join(marks).rstrip()


def _table(curve: Curve) -> Table:
    low, high = bounds(curve.points)
    table = Table(title=plain(title(curve)), box=box.SIMPLE, title_justify="left")
    for name in ("step", "value", "interval", "judged"):
        table.add_column(name, justify="right")
    table.add_column(plain(f"{low:.4g} … {high:.4g}"), no_wrap=True)
    table.add_column("state")
    for point in curve.points:
        judged = "" if point.judged is None else str(point.judged)
        cells = (str(point.step), shown(point.value), interval(point), judged, drawn(point, low, high), point.condition)
        table.add_row(*(plain(cell) for cell in cells))
    return table


def as_page(found: Sequence[Curve], stepless: Sequence[str]) -> str:
    """Return the curves as a self-contained HTML page."""
    return history_page([(title(curve), curve) for curve in found], stepless)


VIEWS = {"text": as_text, "markdown": as_markdown, "json": as_json, "html": as_page}
