"""Pairs the problems that were judged in both of two runs. Pure."""

from collections.abc import Collection
from dataclasses import dataclass

from evalrun_results.metrics.problem_columns import ProblemColumns
from evalrun_results.metrics.problem_totals import DatasetTotals


@dataclass(frozen=True, slots=True)
class PairedDataset:
    """The problems of a dataset in two runs, in the same order, and the number of unpaired problems."""

    problem_ids: tuple[str, ...]
    """Judged in both: at least one sample each."""
    baseline: ProblemColumns
    candidate: ProblemColumns
    only_in_baseline: int
    only_in_candidate: int
    not_judged: int
    """In both runs, but not judged in one of them."""
    all_baseline: ProblemColumns
    all_candidate: ProblemColumns
    """Every problem that both runs have, judged or not: what may be said once missing answers are judged."""

    @property
    def single_samples(self) -> bool:
        """Whether every problem has a single sample in each run, as McNemar's test requires."""
        return bool((self.baseline.seen == 1).all() and (self.candidate.seen == 1).all())


def pair(baseline: DatasetTotals, candidate: DatasetTotals) -> PairedDataset:
    """Pair the problems of a dataset. Problems with only noise-floor repeats are ignored."""
    ours = {name for name, problem in candidate.problems.items() if problem.outcomes.seen}
    theirs = {name for name, problem in baseline.problems.items() if problem.outcomes.seen}
    both = ours & theirs
    paired = sorted(
        name for name in both if baseline.problems[name].outcomes.judged and candidate.problems[name].outcomes.judged
    )
    return PairedDataset(
        problem_ids=tuple(paired),
        baseline=make_problem_columns(baseline, paired),
        candidate=make_problem_columns(candidate, paired),
        only_in_baseline=len(theirs - ours),
        only_in_candidate=len(ours - theirs),
        not_judged=len(both) - len(paired),
        all_baseline=make_problem_columns(baseline, both),
        all_candidate=make_problem_columns(candidate, both),
    )


def make_problem_columns(totals: DatasetTotals, names: Collection[str]) -> ProblemColumns:
    """Return the columns of some problems, in the order of their ids."""
    return ProblemColumns.from_totals(DatasetTotals(problems={name: totals.problems[name] for name in names}))
