"""Compares the phases of a training: whether the headline metrics of each phase moved as intended. Pure.

The phases are: 0 baseline, 1 SFT (fewer low-level errors), 2 DPO (preference alignment as a cold start), 3 GRPO (online
RL with verifiable rewards), 4 multi-turn repair. A run names its phase in `lineage.phase`, and any phase may be
missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from evalrun_registry.metrics import falls
from evalrun_results.comparisons.conditions import list_measurement_changes
from evalrun_results.comparisons.history import read_lineage
from evalrun_results.comparisons.several import Configuration, Contrast, SeveralRuns

Reached = Literal["yes", "no", "open", "-"]
"""yes: the interval is on the wanted side; no: it is on the other side; open: it includes 0; -: there is no value."""


@dataclass(frozen=True, slots=True)
class Headline:
    """A metric that a phase should improve."""

    metric: str
    min_change: float = 0.0
    """Minimum change in the wanted direction: 0.03 is three points."""
    min_value: float | None = None
    """Minimum of the metric itself, for a metric that the baseline cannot have; None: the change counts."""
    dataset: str | None = None
    """The only dataset that counts; None: every dataset."""


@dataclass(frozen=True, slots=True)
class TrainingPhase:
    """A phase of a training."""

    name: str
    spellings: tuple[str, ...]
    """Spellings of `lineage.phase`, in lower case; the first is the usual spelling."""
    goal: str
    headlines: tuple[Headline, ...]


PHASES: Final = (
    TrainingPhase("0 baseline", ("baseline", "base", "phase0", "0"), "where the model stands", ()),
    TrainingPhase(
        "1 SFT",
        ("sft", "phase1", "1"),
        "fewer low-level errors",
        (Headline("exec_success_rate"), Headline("syntax_error_rate")),
    ),
    TrainingPhase(
        "2 DPO",
        ("dpo", "phase2", "2"),
        "preference alignment as a cold start",
        (Headline("pass_ratio_mean"), Headline("zero_reward_rate")),
    ),
    TrainingPhase(
        "3 GRPO",
        ("grpo", "rl", "phase3", "3"),
        "pass@1 up by 3 to 10 points",
        (Headline("accepted_at_1", 0.03, dataset="codecontests_test"),),
    ),
    TrainingPhase(
        "4 repair",
        ("repair", "multi-turn", "multiturn", "phase4", "4"),
        "recovery rate of 20 to 40 %",
        (Headline("recovery_rate", min_value=0.2),),
    ),
)
"""The phases in their order."""
NAMES: Final = tuple(phase.spellings[0] for phase in PHASES)


def phase_named(name: str) -> TrainingPhase | None:
    """Return the phase with this name, from a run's lineage or from a user; None for an unknown name."""
    return next((phase for phase in PHASES if name.lower() in phase.spellings), None)


def phase_in(run_info: Mapping[str, object]) -> TrainingPhase | None:
    """Return the phase in a run's lineage, or None if the lineage names no phase or an unknown phase."""
    said = read_lineage(run_info).get("phase")
    return phase_named(said) if isinstance(said, str) else None


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """A headline metric of a phase, beside the baseline."""

    phase: str
    goal: str
    letter: str
    dataset: str
    metric: str
    baseline: float | None
    value: float | None
    difference: float | None
    low: float | None
    high: float | None
    reached: Reached


@dataclass(frozen=True, slots=True)
class PhaseColumn:
    """A configuration as a phase of a training."""

    letter: str
    phase: str
    goal: str


@dataclass(frozen=True, slots=True)
class PhaseTable:
    """The phases of a training."""

    columns: tuple[PhaseColumn, ...] = ()
    """In the order of the phases, the baseline first."""
    rows: tuple[PhaseRow, ...] = ()


NO_PHASES: Final = PhaseTable()
"""Of runs that are not compared as phases."""


def compare_phases(found: SeveralRuns, named: Mapping[str, TrainingPhase] | None = None) -> PhaseTable:
    """Return the phase table, which compares each configuration with the first by the goals of its phase.

    Args:
        found: the configurations, the baseline first.
        named: phases by the run's place, e.g. of runs whose lineage names none; they come before the lineage's.

    Raises:
        ValueError: a configuration after the first has no known phase, or the first has a phase other than the
            baseline's.
    """
    phases: list[tuple[Configuration, TrainingPhase]] = []
    for number, configuration in enumerate(found.configurations):
        run = configuration.runs[0]
        phase = (named or {}).get(run.place) or phase_in(run.run_info)
        if number == 0 and phase is not None and phase is not PHASES[0]:
            raise ValueError(f"{run.place} is of the phase {phase.name}: name the baseline first")
        if number and phase is None:
            said = read_lineage(run.run_info).get("phase")
            raise ValueError(
                f"{run.place} says {'no phase' if said is None else f'the phase {said!r}, which is not known'}: write "
                f"spec.lineage.phase, or PHASE={run.place} here, one of {', '.join(NAMES)}"
            )
        phases.append((configuration, phase or PHASES[0]))
    phases.sort(key=lambda each: PHASES.index(each[1]))
    columns = tuple(PhaseColumn(each.letter, phase.name, phase.goal) for each, phase in phases)
    return PhaseTable(columns, tuple(_rows(found, phases)))


def explain_outdated_baselines(found: SeveralRuns) -> Iterator[str]:
    """Yield why the first configuration must be measured again: a later run used another engine or judge."""
    first, *others = found.configurations
    names = [each.dataset for each in found.datasets]
    for other in others:
        changed = list_measurement_changes(first.runs[0].run_info, other.runs[0].run_info, names)
        if changed:
            what = "; ".join(changed)
            yield f"{first.letter} must be measured again before it is compared with {other.letter}: {what}"


def _rows(found: SeveralRuns, phases: Sequence[tuple[Configuration, TrainingPhase]]) -> Iterator[PhaseRow]:
    first = found.configurations[0]
    for configuration, phase in phases:
        for headline in phase.headlines:
            for dataset in found.datasets:
                if headline.dataset is not None and headline.dataset != dataset.dataset:
                    continue
                if headline.min_value is not None:
                    yield _level(phase, headline, headline.min_value, dataset.dataset, first, configuration)
                    continue
                between = _find_contrast(dataset.contrasts, first.letter, configuration.letter)
                yield _row(phase, headline, configuration.letter, dataset.dataset, between)
            if headline.dataset is not None and headline.dataset not in {each.dataset for each in found.datasets}:
                yield _row(phase, headline, configuration.letter, headline.dataset, None)


def _level(
    phase: TrainingPhase, headline: Headline, wanted: float, dataset: str, first: Configuration, own: Configuration
) -> PhaseRow:
    """Return the row of a figure that is held to a value of its own, with its own interval."""
    value, low, high = _figure(own, dataset, headline.metric)
    reached: Reached = "open"
    if value is None:
        reached = "-"
    elif low is not None and low >= wanted:
        reached = "yes"
    elif high is not None and high < wanted:
        reached = "no"
    baseline, _, _ = _figure(first, dataset, headline.metric)
    return PhaseRow(
        phase.name, phase.goal, own.letter, dataset, headline.metric, baseline, value, None, low, high, reached
    )


def _figure(configuration: Configuration, dataset: str, metric: str) -> tuple[float | None, float | None, float | None]:
    """Return a figure and its interval as the summary of a configuration's first run has them."""
    figure = configuration.runs[0].figure(dataset, metric) or {}
    value, low, high = (
        float(number) if isinstance(number := figure.get(name), int | float) else None
        for name in ("value", "low", "high")
    )
    return value, low, high


def _find_contrast(contrasts: Sequence[Contrast], first: str, second: str) -> Contrast | None:
    return next((each for each in contrasts if (each.first, each.second) == (first, second)), None)


def _row(phase: TrainingPhase, headline: Headline, letter: str, dataset: str, contrast: Contrast | None) -> PhaseRow:
    found = None if contrast is None else contrast.differences.get(headline.metric)
    if found is None:
        nothing = (None, None, None, None, None)
        return PhaseRow(phase.name, phase.goal, letter, dataset, headline.metric, *nothing, reached="-")
    reached = _decide_reached(headline, found.low, found.high)
    return PhaseRow(
        phase.name, phase.goal, letter, dataset, headline.metric, found.baseline, found.candidate, found.difference,
        found.low, found.high, reached,
    )  # fmt: skip


def _decide_reached(headline: Headline, low: float | None, high: float | None) -> Reached:
    if low is None or high is None:
        return "open"
    if falls(headline.metric):
        low, high = -high, -low
    if low > 0 and low >= headline.min_change:
        return "yes"
    return "no" if high <= 0 or high < headline.min_change else "open"
