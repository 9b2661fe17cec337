"""Compares two runs problem by problem. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from evalrun_registry.metric import Measured, Table
from evalrun_registry.metrics import METRICS, shown_in
from evalrun_results.comparisons.conditions import Info, list_condition_differences
from evalrun_results.comparisons.differences import Difference, Missing, compute_differences
from evalrun_results.comparisons.history import read_lineage
from evalrun_results.comparisons.mcnemar import mcnemar_exact
from evalrun_results.comparisons.pairing import PairedDataset, pair
from evalrun_results.comparisons.roles import role_in
from evalrun_results.metrics.problem_totals import FORGED_WHERE, DatasetTotals, ProblemTotals
from evalrun_results.outputs.stopped_early import STOPPERS
from evalrun_results.samples import JsonObject


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts about a run that a comparison needs."""

    place: str
    """Directory or URL of the run, as the user named it."""
    summary: Mapping[str, object]
    """Content of summary.json."""
    run_info: Info
    totals: Mapping[str, DatasetTotals]

    @property
    def stopped_early(self) -> str | None:
        """A warning if the run was stopped early; None otherwise."""
        stopped = self.summary.get("stoppedEarly")
        if not isinstance(stopped, Mapping):
            return None
        by = STOPPERS["race" if stopped.get("by") == "race" else "gates"]
        return (
            f"{self.place} was stopped early by {by}: it has the first problems that were drawn, and when it "
            "ended depended on them. Intervals and p-values of a comparison hold for runs of a fixed size only"
        )

    @property
    def partial(self) -> str:
        """Why the results do not cover every problem; empty if they do."""
        return str(self.summary.get("partial") or "")

    @property
    def label(self) -> str:
        """The run's name, model and training step, if known."""
        spec = self.run_info.get("spec")
        model = spec.get("model") if isinstance(spec, Mapping) else None
        path = model.get("path") if isinstance(model, Mapping) else None
        step = read_lineage(self.run_info).get("step")
        parts = (self.run_info.get("run"), path, None if step is None else f"step {step}")
        return " · ".join(dict.fromkeys(str(part) for part in parts if part))

    def figure(self, dataset: str, metric: str) -> Mapping[str, object] | None:
        """Return a figure of summary.json, or None if absent."""
        value: object = self.summary
        for name in ("datasets", dataset, "metrics", metric):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value if isinstance(value, Mapping) else None

    def metric_names(self, dataset: str) -> list[str]:
        """Return the names of a dataset's figures."""
        datasets = self.summary.get("datasets")
        found = datasets.get(dataset) if isinstance(datasets, Mapping) else None
        metrics = found.get("metrics") if isinstance(found, Mapping) else None
        return list(metrics) if isinstance(metrics, Mapping) else []


@dataclass(frozen=True, slots=True)
class ProblemOutcome:
    """The outcome of a problem in a run."""

    judged: int
    accepted: int
    final_status: Mapping[str, int]
    """Judged samples by final status."""

    @property
    def text(self) -> str:
        """The final status of a single sample, or the number of accepted samples."""
        if self.judged != 1:
            return f"{self.accepted} of {self.judged}"
        # A later turn's completion may be accepted.
        return "success" if self.accepted else next(iter(self.final_status))


@dataclass(frozen=True, slots=True)
class Flip:
    """A problem that only one of two runs solved."""

    problem_id: str
    baseline: ProblemOutcome
    candidate: ProblemOutcome


@dataclass(frozen=True, slots=True)
class DatasetComparison:
    """A dataset in two runs."""

    dataset: str
    role: str
    """Permitted use (train, dev, test) as recorded by B; empty if unknown."""
    problems: int
    """Number of problems judged in both runs; all fields below refer to these."""
    only_in_baseline: int
    only_in_candidate: int
    not_judged: int
    differences: Mapping[str, Difference]
    lost: tuple[Flip, ...]
    """Solved in the baseline only."""
    gained: tuple[Flip, ...]
    """Solved in the candidate only."""
    both_solved: int
    neither_solved: int
    mcnemar_p: float | None
    """None unless every problem has one sample per run."""
    noise_floors: Mapping[str, Mapping[str, object]]
    """By `baseline` and `candidate`, if measured: the share of verdicts that flip when the run is repeated."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs; differences are candidate (B) minus baseline (A)."""

    baseline: RunFacts
    candidate: RunFacts
    warnings: tuple[str, ...]
    datasets: tuple[DatasetComparison, ...]

    def as_json(self) -> JsonObject:
        """Return the comparison as JSON values."""
        runs: JsonObject = {}
        for role, run in (("baseline", self.baseline), ("candidate", self.candidate)):
            runs[role] = {"place": run.place, "label": run.label, "state": str(run.summary.get("state"))}
        return {
            "schema": 1,
            **runs,
            "warnings": list(self.warnings),
            "datasets": {each.dataset: _plain(each) for each in self.datasets},
        }


def compare_runs(baseline: RunFacts, candidate: RunFacts) -> Comparison:
    """Compare two runs on the datasets that both have."""
    shared = [name for name in baseline.totals if name in candidate.totals]
    compared = tuple(compare_dataset(name, baseline, candidate) for name in shared)
    return Comparison(baseline, candidate, tuple(_warnings(baseline, candidate, compared)), compared)


def compare_dataset(name: str, baseline: RunFacts, candidate: RunFacts) -> DatasetComparison:
    """Compare a dataset that both runs have."""
    ours, theirs = baseline.totals[name], candidate.totals[name]
    paired = pair(ours, theirs)
    metrics = select_metrics(name, (baseline, candidate))
    solved, solves = paired.baseline.solved, paired.candidate.solved
    lost, gained = solved & ~solves, ~solved & solves
    return DatasetComparison(
        dataset=name,
        role=role_in(candidate.run_info, name),
        problems=len(paired.problem_ids),
        only_in_baseline=paired.only_in_baseline,
        only_in_candidate=paired.only_in_candidate,
        not_judged=paired.not_judged,
        differences=compute_differences(paired, metrics),
        lost=_flips(paired, lost.tolist(), ours, theirs),
        gained=_flips(paired, gained.tolist(), ours, theirs),
        both_solved=int((solved & solves).sum()),
        neither_solved=int((~solved & ~solves).sum()),
        mcnemar_p=mcnemar_exact(int(lost.sum()), int(gained.sum())) if _fits_mcnemar(paired) else None,
        noise_floors={
            role: figure
            for role, run in (("baseline", baseline), ("candidate", candidate))
            if (figure := run.figure(name, "flip_rate")) is not None and figure.get("value") is not None
        },
    )


def select_metrics(dataset: str, runs: Iterable[RunFacts]) -> list[str]:
    """Return the metrics to compare: the standard metrics, and those that the runs report."""
    reported = [metric for run in runs for metric in run.metric_names(dataset)]
    standard = [metric.name for metric in METRICS if metric.measured is Measured.ALWAYS]
    return [metric.name for metric, _ in shown_in(Table.COMPARISON, [*standard, *reported])]


def natural_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts HumanEval/6 before HumanEval/10."""
    parts = re.findall(r"([0-9]{1,18})|([^0-9]+|[0-9])", name)
    return [(int(digits), "") if digits else (-1, other) for digits, other in parts]


def _fits_mcnemar(paired: PairedDataset) -> bool:
    return paired.single_samples and len(paired.problem_ids) > 0


def _flips(paired: PairedDataset, which: list[bool], ours: DatasetTotals, theirs: DatasetTotals) -> tuple[Flip, ...]:
    flips = [
        Flip(name, make_outcome(ours.problems[name]), make_outcome(theirs.problems[name]))
        for name, flipped in zip(paired.problem_ids, which, strict=True)
        if flipped
    ]
    return tuple(sorted(flips, key=lambda flip: natural_order(flip.problem_id)))


def make_outcome(problem: ProblemTotals) -> ProblemOutcome:
    """Return the outcome of a problem."""
    return ProblemOutcome(
        problem.outcomes.judged.bit_count(), problem.accepted_samples.bit_count(), dict(problem.statuses)
    )


def _warnings(baseline: RunFacts, candidate: RunFacts, compared: tuple[DatasetComparison, ...]) -> list[str]:
    names = [each.dataset for each in compared]
    lines = list_condition_differences(baseline.run_info, candidate.run_info, names)
    lines += [said for run in (baseline, candidate) if (said := run.stopped_early) is not None]
    partial = [f"{run.place} is partial: {run.partial}" for run in (baseline, candidate) if run.partial]
    lines += dict.fromkeys(partial)
    for letter, run, other in (("A", baseline, candidate), ("B", candidate, baseline)):
        lines += [f"{name}: only {letter} has it; not compared" for name in sorted(set(run.totals) - set(other.totals))]
        lines += [
            f"{name}: {count} results of {letter} can be forged ({FORGED_WHERE}); they feed no gate"
            for name in names
            if (count := run.totals[name].flags["forgeable"])
        ]
    for each in compared:
        unpaired = {
            "only in A": each.only_in_baseline, "only in B": each.only_in_candidate,
            "not judged in one of them": each.not_judged,
        }  # fmt: skip
        parts = ", ".join(f"{count} {where}" for where, count in unpaired.items() if count)
        if parts:
            lines.append(f"{each.dataset}: problems that are not compared: {parts}")
        lines += _describe_missing_answers(each)
    return lines


def _describe_missing_answers(each: DatasetComparison) -> Iterator[str]:
    """Name the answers that are missing for the most metrics, and pass@1's interval without them."""
    found = each.differences.get("accepted_at_1")
    if found is not None and found.missing is not None:
        yield f"{each.dataset}: {describe_missing(found.missing, 'A', 'B')}"


def describe_missing(missing: Missing, first: str, second: str) -> str:
    """Describe how many completions of two runs are missing, and the interval of pass@1 without their problems."""
    counts = f"{missing.baseline:,} answers of {first} and {missing.candidate:,} of {second} were not judged"
    if missing.low is None or missing.high is None:
        return f"{counts}; intervals take them in the least favourable way"
    return (
        f"{counts}; intervals take them in the least favourable way for either run. Without them pass@1 would be "
        f"{100 * missing.low:+.1f} to {100 * missing.high:+.1f} pt"
    )


def _plain(each: DatasetComparison) -> JsonObject:
    content: JsonObject = asdict(each)
    del content["dataset"]
    return content
