"""`evalrun compare` of three or more runs: reads them, compares them, and writes the comparison."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich import box
from rich.table import Table

from evalrun_cli.comparisons.history import runs_below
from evalrun_cli.comparisons.several_page import several_page
from evalrun_cli.comparisons.several_text import (
    CONTRAST_HEADINGS,
    PHASE_HEADINGS,
    PHASES_TITLE,
    contrast_row,
    flip_row,
    notes,
    phase_row,
    place,
    shown_standings,
    standing_row,
    title,
)
from evalrun_cli.comparisons.views import SHOWN_FLIPS, cell, dataset_names, plain, run_facts, terminal, write
from evalrun_cli.printable_text import printable
from evalrun_results.comparisons.phases import (
    NO_PHASES,
    PHASES,
    PhaseTable,
    TrainingPhase,
    compare_phases,
    explain_outdated_baselines,
    phase_in,
    phase_named,
)
from evalrun_results.comparisons.several import DatasetAcross, SeveralRuns, compare_several, make_configurations
from evalrun_runtime.exits import BadInputError, ExitCode


def compare_several_runs(
    places: Sequence[str], *, all_pairs: bool, pool_seeds: bool, phases: bool, view: str, output: Path | None
) -> ExitCode:
    """Compare the runs in several directories or URLs, and show or write the comparison.

    Raises:
        BadInputError: a place is named twice or holds no finished run, nothing can be compared, a run names no
            phase, or the file cannot be written.
    """
    named: Mapping[str, TrainingPhase] = {}
    if phases:
        places, named = phase_places(places)
    found = compare_places(places, all_pairs=all_pairs, pool_seeds=pool_seeds)
    try:
        table = compare_phases(found, named) if phases else NO_PHASES
    except ValueError as error:
        raise BadInputError(f"--phases: {error}") from error
    if phases:
        found = replace(found, warnings=(*explain_outdated_baselines(found), *found.warnings))
    write(VIEWS[view](found, table), output)
    return ExitCode.SUCCEEDED


def phase_places(places: Sequence[str]) -> tuple[list[str], dict[str, TrainingPhase]]:
    """Return the runs of a training, the baseline's first, and the phases that the user names as PHASE=RUN.

    A directory or URL that is no run stands for the runs in it that name their phase. Raises BadInputError.
    """
    found: list[tuple[str, TrainingPhase | None]] = []
    named: dict[str, TrainingPhase] = {}
    for each in places:
        name, sign, place = each.partition("=")
        if sign and (phase := phase_named(name)) is not None:
            named[place] = phase
            found.append((place, phase))
            continue
        runs = [(run.place, phase_in(run.run_info)) for run in runs_below(each)]
        found += runs if [place for place, _ in runs] == [each] else [run for run in runs if run[1] is not None]
    baselines = [place for place, phase in found if phase is PHASES[0]]
    return baselines + [place for place, phase in found if phase is not PHASES[0]], named


def compare_places(places: Sequence[str], *, all_pairs: bool, pool_seeds: bool) -> SeveralRuns:
    """Compare the runs in several directories or URLs.

    Raises:
        BadInputError: a place is named twice or holds no finished run, or nothing can be compared.
    """
    if len(places) < 2:
        raise BadInputError(f"{places[0]}: is one run: name at least two, the baseline first")
    if twice := sorted({each for each in places if places.count(each) > 1}):
        raise BadInputError(f"{', '.join(twice)}: named twice: name each run once")
    runs = [run_facts(each) for each in places]
    try:
        configurations = make_configurations(runs, pool_seeds=pool_seeds)
    except ValueError as error:
        raise BadInputError(str(error)) from error
    if len(configurations) < 2:
        raise BadInputError(
            "--pool-seeds: all runs have the same configuration: add a run with another, or remove --pool-seeds"
        )
    found = compare_several(configurations, all_pairs=all_pairs)
    if not found.datasets:
        has = "; ".join(f"{run.place} has {dataset_names(run.totals)}" for run in runs)
        raise BadInputError(f"the runs share no dataset: {has}")
    return found


def as_text(found: SeveralRuns, phases: PhaseTable = NO_PHASES) -> str:
    """Return a comparison for a terminal, with its phase table if it has one."""
    console = terminal()
    with console.capture() as captured:
        for each in found.configurations:
            console.print(plain(f"{each.letter}  {place(each)}  ({each.label})"), soft_wrap=True)
        for warning in found.warnings:
            console.print(plain(f"!  {warning}", style="yellow"), soft_wrap=True)
        if phases.rows:
            console.print()
            console.print(plain(PHASES_TITLE, style="italic"))
            console.print(_table(PHASE_HEADINGS, [phase_row(each) for each in phases.rows], right=False))
        for dataset in found.datasets:
            console.print()
            console.print(plain(title(dataset), style="italic"))
            if dataset.standings:
                rows = [standing_row(*each) for each in shown_standings(dataset)]
                console.print(_table(["", *_letters(found)], rows))
            contrasts = [contrast_row(each) for each in dataset.contrasts]
            console.print(_table(CONTRAST_HEADINGS, contrasts))
            for note in notes(dataset, found):
                console.print(plain(note))
            if dataset.flips:
                rows = [flip_row(flip) for flip in dataset.flips[:SHOWN_FLIPS]]
                console.print()
                console.print(plain("Solved by some", style="bold"))
                console.print(_table(["Problem", *_letters(found)], rows, right=False))
                if len(dataset.flips) > SHOWN_FLIPS:
                    console.print(plain(f"  and {len(dataset.flips) - SHOWN_FLIPS} more (--format json lists all)"))
    return captured.get().rstrip()


def as_markdown(found: SeveralRuns, phases: PhaseTable = NO_PHASES) -> str:
    """Return a comparison as GitHub's Markdown."""
    lines = ["## Runs compared", ""]
    lines += [f"- **{each.letter}**: {cell(each.label)} ({cell(place(each))})" for each in found.configurations]
    if found.warnings:
        lines += ["", *(f"> ⚠ {cell(warning)}  " for warning in found.warnings)]
    if phases.rows:
        lines += ["", f"### {PHASES_TITLE}", ""]
        lines += _markdown_table(PHASE_HEADINGS, (phase_row(each) for each in phases.rows))
    for dataset in found.datasets:
        lines += ["", f"### {cell(title(dataset))}", ""]
        if dataset.standings:
            lines += _markdown_table(["", *_letters(found)], (standing_row(*each) for each in shown_standings(dataset)))
            lines.append("")
        lines += _markdown_table(CONTRAST_HEADINGS, (contrast_row(each) for each in dataset.contrasts))
        lines += ["", *(f"{cell(note)}.  " for note in notes(dataset, found))]
        lines += _fold_flips(dataset, found)
    return "\n".join(lines)


def as_json(found: SeveralRuns, phases: PhaseTable = NO_PHASES) -> str:
    """Return a comparison as JSON."""
    content = found.as_json() | ({"phases": [asdict(each) for each in phases.rows]} if phases.rows else {})
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)


VIEWS: Mapping[str, Callable[[SeveralRuns, PhaseTable], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "json": as_json,
    "html": several_page,
}


def _letters(found: SeveralRuns) -> list[str]:
    return [each.letter for each in found.configurations]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: bool = True) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if right and number else "left")
    for row in rows:
        table.add_row(*(printable(each) for each in row))
    return table


def _markdown_table(headings: Sequence[str], rows: Iterator[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(headings) + " |", "|---|" + "--:|" * (len(headings) - 1)]
    return [*lines, *("| " + " | ".join(cell(each) for each in row) + " |" for row in rows)]


def _fold_flips(dataset: DatasetAcross, found: SeveralRuns) -> list[str]:
    if not dataset.flips:
        return []
    rows = _markdown_table(["Problem", *_letters(found)], (flip_row(flip) for flip in dataset.flips))
    return ["", f"<details><summary>Solved by some ({len(dataset.flips)})</summary>", "", *rows, "", "</details>"]
