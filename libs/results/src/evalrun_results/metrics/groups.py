"""Figures of a dataset by difficulty and by tag. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from evalrun_results.metrics.figures import Figure
from evalrun_results.metrics.problem_totals import DatasetTotals, ProblemTotals
from evalrun_results.samples import JsonObject

MAX_GROUPS: Final = 50
"""Maximum number of listed difficulties, and of tags: those with the most problems."""

FiguresOf = Callable[[DatasetTotals, int], Mapping[str, Figure]]
"""Returns the headline figures of some problems, by a seed for their intervals."""


def group_figures(totals: DatasetTotals, figures_of: FiguresOf, seed: int) -> JsonObject:
    """Return the metrics by difficulty and by tag. A key is absent if no problem has a value for it."""
    kinds = {"by_difficulty": _list_difficulties, "by_tag": _list_tags}
    found = {name: _measure_groups(totals, groups_of, figures_of, seed) for name, groups_of in kinds.items()}
    return {name: groups for name, groups in found.items() if groups}


def _measure_groups(
    totals: DatasetTotals, groups_of: Callable[[ProblemTotals], tuple[str, ...]], figures_of: FiguresOf, seed: int
) -> JsonObject:
    members: dict[str, dict[str, ProblemTotals]] = {}
    for problem_id, problem in totals.problems.items():
        for group in groups_of(problem) if problem.outcomes.seen else ():
            members.setdefault(group, {})[problem_id] = problem
    return {
        group: {
            "problems": len(members[group]),
            "judged": sum(problem.outcomes.judged.bit_count() for problem in members[group].values()),
            "metrics": {
                name: figure.as_json()
                for name, figure in figures_of(replace(totals, problems=members[group]), seed).items()
            },
        }
        for group in sorted(_largest(members))
    }


def _largest(members: Mapping[str, Mapping[str, ProblemTotals]]) -> Iterator[str]:
    sizes = Counter({group: len(problems) for group, problems in sorted(members.items())})
    yield from (group for group, _ in sizes.most_common(MAX_GROUPS))


def _list_difficulties(problem: ProblemTotals) -> tuple[str, ...]:
    return (problem.difficulty,) if problem.difficulty else ()


def _list_tags(problem: ProblemTotals) -> tuple[str, ...]:
    return problem.tags
