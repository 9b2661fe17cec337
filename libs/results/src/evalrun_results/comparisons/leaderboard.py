"""Ranks runs by dataset, and reports which runs do not differ significantly. Pure.

Two runs differ significantly if the p-value of their paired difference stays below 0.05 after Holm's correction over
all pairs of the leaderboard. So runs that are truly equal are ranked apart in at most 5 % of leaderboards, whatever the
number of runs. Runs that were measured in another way stand in another table, because their scores cannot be compared.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Final

import numpy as np

from evalrun_results.comparisons.comparison import RunFacts, natural_order
from evalrun_results.comparisons.conditions import differ_by_seed_alone, read_seed, why_not_comparable
from evalrun_results.comparisons.multiple_tests import holm, sign_flip_p
from evalrun_results.comparisons.roles import role_in
from evalrun_results.comparisons.several import first_fit
from evalrun_results.metrics.intervals import Floats, plus_four
from evalrun_results.metrics.problem_totals import FORGED_WHERE, DatasetTotals
from evalrun_results.samples import JsonObject

ERROR: Final = 0.05
"""Maximum probability with which a leaderboard ranks equal runs apart."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A run in a table, or runs that differ only by their seed."""

    label: str
    places: tuple[str, ...]
    seeds: tuple[int | None, ...]
    first_rank: int
    last_rank: int
    """Between which its rank lies: 1 is best, and equal ranks say that two entries cannot be told apart."""
    lowest: float
    highest: float
    """pass@1 over the table's problems, if every missing completion had failed, or been accepted."""
    low: float
    high: float
    """95 % interval over problems, around both."""
    coverage: float
    """Share of the table's completions that were judged, its mean over problems."""
    tokens_per_solved: float | None
    """Output tokens of all turns for each sample solved in any; None where tokens are unknown or nothing was solved."""
    attested: bool | None
    """Whether every run of the entry is as a trusted signer has signed it; None where nobody asked."""


@dataclass(frozen=True, slots=True)
class Table:
    """Entries that were measured in the same way on the same problems."""

    dataset: str
    role: str
    problems: int
    differs: tuple[str, ...]
    """How these runs were measured differently from those in the dataset's first table."""
    entries: tuple[Entry, ...]
    """The highest score first."""


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """Tables of runs."""

    tables: tuple[Table, ...]
    tests: int
    """Pairs that were tested: Holm's correction covers all of them."""
    not_ranked: tuple[str, ...]
    """Runs that are in no table, each with the reason."""

    def as_json(self) -> JsonObject:
        """Return it as plain values."""
        correction = {"method": "Holm", "error": ERROR, "tests": self.tests}
        return {"schema": 1, "correction": correction, **asdict(self)}


@dataclass(frozen=True, slots=True)
class _Group:
    """Runs that differ only by their seed, and their scores by problem."""

    runs: tuple[RunFacts, ...]
    lows: Floats
    highs: Floats


def rank_runs(
    runs: Sequence[RunFacts], attested: Collection[str] | None = None, datasets: Collection[str] | None = None
) -> Leaderboard:
    """Rank runs on each dataset that any of them has.

    A problem's score is the share of its answers that were accepted, its mean over seeds. A missing answer, including
    answers to problems that a run never reached, is assumed wrong when the run is compared as the better one, and
    accepted when it is compared as the worse one. Results that can be forged and runs that their gates stopped early
    are not ranked.

    Args:
        runs: finished runs.
        attested: places of the runs that match a trusted signer's statement; None if signatures were not checked.
        datasets: for the ranking; other datasets are excluded from Holm's correction too. None means all.
    """
    names = sorted({name for run in runs for name in run.totals if datasets is None or name in datasets})
    not_ranked: list[str] = []
    boards: list[tuple[str, list[RunFacts]]] = []
    for name in names:
        reasons = [(run, _why_not_ranked(run, name)) for run in runs if name in run.totals]
        not_ranked += [why for _, why in reasons if why]
        boards += [(name, board) for board in _boards(name, [run for run, why in reasons if not why])]
    groups = [_groups(name, board) for name, board in boards]
    p_values = [pairwise_p([each.lows for each in found], [each.highs for each in found]) for found in groups]
    adjusted = iter(holm([p for each in p_values for p in each.values()]))
    tables: list[Table] = []
    for (name, board), found, tested in zip(boards, groups, p_values, strict=True):
        apart = {pair for pair in tested if next(adjusted) < ERROR}
        first = next((own for other, own in boards if other == name), board)
        differs = () if first is board else tuple(why_not_comparable(first[0].run_info, board[0].run_info, name))
        tables.append(_table(name, found, apart, differs, attested))
    return Leaderboard(tuple(tables), sum(map(len, p_values)), tuple(dict.fromkeys(not_ranked)))


def pairwise_p(lows: Sequence[Floats], highs: Sequence[Floats]) -> Mapping[tuple[int, int], float]:
    """Return the p-value of each pair's difference, with missing answers as is worst for the difference.

    Args:
        lows, highs: an array per entry: the bounds of its score, by problem.
    """
    found = {}
    for first, second in combinations(range(len(lows)), 2):
        least, greatest = lows[second] - highs[first], highs[second] - lows[first]
        undone = least.sum() <= 0 <= greatest.sum() and bool((least != greatest).any())
        found[first, second] = 1.0 if undone else sign_flip_p(least if least.sum() > 0 else greatest)
    return found


def _why_not_ranked(run: RunFacts, name: str) -> str:
    totals = run.totals[name]
    if forgeable := totals.flags["forgeable"]:
        return f"{run.place}: {forgeable} results of {name} can be forged ({FORGED_WHERE})"
    if not any(each.outcomes.seen for each in totals.problems.values()):
        return f"{run.place}: has no answers of {name}"
    return run.stopped_early or ""


def _boards(name: str, runs: Sequence[RunFacts]) -> list[list[RunFacts]]:
    """Return the runs that were measured in the same way, together; the most runs first."""
    boards = first_fit(runs, lambda board, run: not why_not_comparable(board[0].run_info, run.run_info, name))
    return sorted(boards, key=lambda board: -len(board))


def _groups(name: str, runs: Sequence[RunFacts]) -> list[_Group]:
    problems = sorted({key for run in runs for key, each in run.totals[name].problems.items() if each.outcomes.seen})
    pooled = first_fit(
        runs, lambda group, run: all(differ_by_seed_alone(other.run_info, run.run_info, [name]) for other in group)
    )
    bounds = [np.mean([_scores(run.totals[name], problems) for run in group], axis=0) for group in pooled]
    return [_Group(tuple(group), lows, highs) for group, (lows, highs) in zip(pooled, bounds, strict=True)]


def _scores(totals: DatasetTotals, problems: Sequence[str]) -> list[list[float]]:
    """Return the least and the greatest score of each problem."""
    lows, highs = [], []
    for key in problems:
        problem = totals.problems.get(key)
        if problem is None or not problem.outcomes.seen:
            lows.append(0.0)
            highs.append(1.0)
            continue
        seen, judged, accepted = (
            bits.bit_count() for bits in (problem.outcomes.seen, problem.outcomes.judged, problem.outcomes.accepted)
        )
        lows.append(accepted / seen)
        highs.append((accepted + seen - judged) / seen)
    return [lows, highs]


def _table(
    name: str,
    groups: Sequence[_Group],
    apart: set[tuple[int, int]],
    differs: tuple[str, ...],
    attested: Collection[str] | None,
) -> Table:
    means = [float(each.lows.mean() + each.highs.mean()) for each in groups]
    entries = []
    for place, group in enumerate(groups):
        others = [other for other in range(len(groups)) if (min(place, other), max(place, other)) in apart]
        better = sum(means[other] > means[place] for other in others)
        worse = len(others) - better
        entries.append(_entry(name, group, (1 + better, len(groups) - worse), attested))
    entries.sort(key=lambda each: (-(each.lowest + each.highest), natural_order(each.label)))
    role = role_in(groups[0].runs[0].run_info, name)
    return Table(name, role, len(groups[0].lows), differs, tuple(entries))


def _entry(name: str, group: _Group, ranks: tuple[int, int], attested: Collection[str] | None) -> Entry:
    problems = [each for run in group.runs for each in run.totals[name].problems.values()]
    solved = sum(each.accepted_samples.bit_count() for each in problems)
    tokens = sum(each.output_tokens for each in problems)
    counted = sum(each.answers for each in problems) == sum(each.with_tokens for each in problems)
    first = group.runs[0]
    return Entry(
        label=first.label or first.place,
        places=tuple(run.place for run in group.runs),
        seeds=tuple(read_seed(run.run_info) for run in group.runs),
        first_rank=ranks[0],
        last_rank=ranks[1],
        lowest=float(group.lows.mean()),
        highest=float(group.highs.mean()),
        low=plus_four(group.lows)[0],
        high=plus_four(group.highs)[1],
        coverage=1.0 - float((group.highs - group.lows).mean()),
        tokens_per_solved=tokens / solved if solved and counted else None,
        attested=None if attested is None else all(run.place in attested for run in group.runs),
    )
