"""`evalrun leaderboard`: reads runs, ranks them, and shows the tables in each format."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
from rich import box

from evalrun_cli.attestation.requirement import read_trust, why_not_attested
from evalrun_cli.attestation.trust_files import NOBODY, TrustFiles
from evalrun_cli.comparisons.history import places_below
from evalrun_cli.comparisons.views import cell, plain, run_facts, terminal, write
from evalrun_cli.printable_text import printable
from evalrun_cli.terminal import print_whole, whole_table
from evalrun_results.comparisons.leaderboard import ERROR, Entry, Leaderboard, Table, rank_runs
from evalrun_results.comparisons.roles import render_dataset_name
from evalrun_results.report.markup import Child, Markup, element, joined
from evalrun_results.report.page import page, table
from evalrun_results.report.plots import draw_interval_bar
from evalrun_runtime.exits import BadInputError, ExitCode

HEADINGS: Final = ["rank", "run", "pass@1", "95 % interval", "judged", "tokens per solved"]


def print_leaderboard(
    places: Sequence[str],
    *,
    datasets: Sequence[str] = (),
    trust: TrustFiles = NOBODY,
    view: str,
    output: Path | None,
) -> ExitCode:
    """Rank the runs in several directories or URLs, and show or write the tables.

    Args:
        places: places of runs, or of directories of runs.
        datasets: names of the datasets to rank the runs on; empty: all.
        trust: which signatures count.
        view: a key of `VIEWS`.
        output: file to write; None: print.

    Raises:
        BadInputError: a place holds no finished run, no run can be ranked or has a dataset, or a file cannot be used.
    """
    if trust.revocations is not None and not trust.names_anybody:
        raise BadInputError("--revocations: says nothing without those that you trust: add --trust FILE or --identity")
    if trust.trust_config is not None and trust.identity is None:
        raise BadInputError("--trust-config: says nothing without --identity NAME --issuer URL: add them")
    runs = list(dict.fromkeys(run for each in places for run in places_below(each)))
    facts = [run_facts(each) for each in runs]
    known = sorted({name for each in facts for name in each.totals})
    if unknown := sorted(set(datasets) - set(known)):
        raise BadInputError(f"--suite {unknown[0]}: no run has it: the runs have {', '.join(known)}")
    found = rank_runs(facts, _select_attested(runs, trust) if trust.names_anybody else None, datasets or None)
    if not found.tables:
        raise BadInputError("; ".join(found.not_ranked) or f"{', '.join(places)}: the runs have no results")
    write(VIEWS[view](found), output)
    return ExitCode.SUCCEEDED


def _select_attested(places: Sequence[str], files: TrustFiles) -> set[str]:
    trust = read_trust(files)
    from evalrun_attest.signatures import MissingExtraError

    found = set()
    for each in places:
        try:
            if not why_not_attested(each, trust):
                found.add(each)
        except MissingExtraError as error:
            if trust.identity is not None:
                raise
            click.echo(printable(f"{each}: not attested: {error}"), err=True)
    return found


def title(found: Table) -> str:
    """Return a table's heading."""
    return f"{render_dataset_name(found.dataset, found.role)}: {found.problems:,} problems"


def row(each: Entry) -> list[str]:
    """Return an entry's cells, one for each of `HEADINGS`."""
    return [_rank(each), _name(each), *_figures(each)]


def notes(found: Leaderboard) -> list[str]:
    """Return notes on how to read the ranks, and on the runs without a rank."""
    read = (
        "A rank such as 2-4 says that the entry cannot be told apart from others. With Holm's correction over the "
        f"{found.tests:,} pairs, equal runs are ranked apart in at most {100 * ERROR:.0f} % of leaderboards"
    )
    entries = [entry for each in found.tables for entry in each.entries]
    signed = "Attested: a signer that you trust has signed the results, and they are as they were signed"
    notes_of_signatures = [signed] if any(each.attested for each in entries) else []
    return [read, *notes_of_signatures, *(f"Not ranked: {each}" for each in found.not_ranked)]


def as_text(found: Leaderboard) -> str:
    """Return a leaderboard for a terminal."""
    console = terminal()
    with console.capture() as captured:
        for each in found.tables:
            console.print(plain(title(each), style="italic"))
            for line in each.differs:
                console.print(
                    plain(f"!  measured differently from the first table of {each.dataset}: {line}", "yellow"),
                    soft_wrap=True,
                )
            print_whole(console, whole_table("run", HEADINGS, [row(entry) for entry in each.entries], box.SIMPLE_HEAD))
        for note in notes(found):
            console.print(plain(note), soft_wrap=True)
    return captured.get().rstrip()


def as_markdown(found: Leaderboard) -> str:
    """Return a leaderboard as GitHub's Markdown."""
    lines = ["## Leaderboard"]
    for each in found.tables:
        lines += ["", f"### {cell(title(each))}", ""]
        lines += [f"> ⚠ measured differently from the first table: {cell(line)}  " for line in each.differs]
        lines += ["", f"| {' | '.join(HEADINGS)} |", "|--:|---|--:|--:|--:|--:|"]
        lines += [f"| {' | '.join(map(cell, row(entry)))} |" for entry in each.entries]
    return "\n".join([*lines, "", *(f"{cell(note)}.  " for note in notes(found))])


def as_page(found: Leaderboard) -> str:
    """Return a leaderboard as a page that needs nothing else."""
    return page(
        "Leaderboard",
        element("h1", "Leaderboard"),
        [_section(each) for each in found.tables],
        [element("p", f"{note}.") for note in notes(found)],
    )


def as_json(found: Leaderboard) -> str:
    """Return a leaderboard as JSON."""
    return json.dumps(found.as_json(), indent=2, ensure_ascii=False, allow_nan=False)


VIEWS: Mapping[str, Callable[[Leaderboard], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "json": as_json,
    "html": as_page,
}


def _section(found: Table) -> Markup:
    rows: list[list[Child]] = []
    for each in found.entries:
        rank, name, score, *rest = row(each)
        bar = draw_interval_bar((each.lowest + each.highest) / 2, each.low, each.high)
        rows.append([element("b", rank), name, joined(score, bar), *rest])
    differs = [element("li", line) for line in found.differs]
    notice = element("div", element("b", "Measured differently from the dataset's first table"), element("ul", differs),
                     class_="notice") if differs else None  # fmt: skip
    numbers = frozenset(range(2, len(HEADINGS)))
    figures = element("div", table(HEADINGS, rows, right=numbers), class_="panel")
    return joined(element("h2", title(found)), notice, figures)


def _rank(each: Entry) -> str:
    return str(each.first_rank) if each.first_rank == each.last_rank else f"{each.first_rank}-{each.last_rank}"


def _name(each: Entry) -> str:
    seeds = f" · seeds {', '.join(map(str, each.seeds))}" if len(each.places) > 1 else ""
    return f"{each.label}{seeds}{' · attested' if each.attested else ''}"


def _figures(each: Entry) -> list[str]:
    lowest, highest = f"{100 * each.lowest:.1f}", f"{100 * each.highest:.1f}"
    score = f"{lowest} %" if lowest == highest else f"{lowest} to {highest} %"
    tokens = "-" if each.tokens_per_solved is None else f"{each.tokens_per_solved:,.0f}"
    return [score, f"{100 * each.low:.1f} to {100 * each.high:.1f} %", f"{100 * each.coverage:.1f} %", tokens]
