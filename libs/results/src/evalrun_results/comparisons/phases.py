"""Compares the phases of a training: whether the headline figures of each moved as intended. Pure.

Phases as a team trains them: 0 baseline, 1 SFT (fewer low-level errors), 2 DPO (preference alignment as a cold start),
3 GRPO (online RL with verifiable rewards), 4 multi-turn repair.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from evalrun_registry.metrics import falls
from evalrun_results.comparisons.several import Contrast, SeveralRuns

Reached = Literal["yes", "no", "open", "-"]
"""yes: the interval is on the wanted side; no: it is on the other; open: it holds both; -: there is no figure."""


@dataclass(frozen=True, slots=True)
class Headline:
    """One figure that a phase should improve."""

    metric: str
    min_change: float
    """Minimum change in the wanted direction: 0.03 is three points."""
    dataset: str | None = None
    """The only dataset that counts; None: every dataset."""


@dataclass(frozen=True, slots=True)
class TrainingPhase:
    """One phase of a training."""

    name: str
    goal: str
    headlines: tuple[Headline, ...]


PHASES: Final = (
    TrainingPhase("0 baseline", "where the model stands", ()),
    TrainingPhase(
        "1 SFT",
        "fewer low-level errors",
        (Headline("exec_success_rate", 0.0), Headline("syntax_error_rate", 0.0)),
    ),
    TrainingPhase(
        "2 DPO",
        "preference alignment as a cold start",
        (Headline("pass_ratio_mean", 0.0), Headline("zero_reward_rate", 0.0)),
    ),
    TrainingPhase(
        "3 GRPO", "accepted@1 up by 3 to 10 points", (Headline("accepted_at_1", 0.03, dataset="codecontests_test"),)
    ),
    TrainingPhase("4 repair", "recovery rate of 20 to 40 %", (Headline("recovery_rate", 0.2),)),
)
"""In their order."""


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One headline figure of one phase, beside the baseline."""

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


def phase_rows(found: SeveralRuns) -> tuple[PhaseRow, ...]:
    """Return the phase table: the configurations are the phases, in their order; each is held beside the first.

    Raises:
        ValueError: there are more configurations than phases.
    """
    if len(found.configurations) > len(PHASES):
        raise ValueError(f"{len(found.configurations)} runs: there are {len(PHASES)} phases, {PHASES[0].name} first")
    return tuple(_rows(found))


def _rows(found: SeveralRuns) -> Iterator[PhaseRow]:
    first = found.configurations[0].letter
    for phase, configuration in zip(PHASES, found.configurations, strict=False):
        for headline in phase.headlines:
            for dataset in found.datasets:
                if headline.dataset is not None and headline.dataset != dataset.dataset:
                    continue
                between = _between(dataset.contrasts, first, configuration.letter)
                yield _row(phase, headline, configuration.letter, dataset.dataset, between)
            if headline.dataset is not None and headline.dataset not in {each.dataset for each in found.datasets}:
                yield _row(phase, headline, configuration.letter, headline.dataset, None)


def _between(contrasts: Sequence[Contrast], first: str, second: str) -> Contrast | None:
    return next((each for each in contrasts if (each.first, each.second) == (first, second)), None)


def _row(phase: TrainingPhase, headline: Headline, letter: str, dataset: str, contrast: Contrast | None) -> PhaseRow:
    found = None if contrast is None else contrast.differences.get(headline.metric)
    if found is None:
        nothing = (None, None, None, None, None)
        return PhaseRow(phase.name, phase.goal, letter, dataset, headline.metric, *nothing, reached="-")
    reached = _reached(headline, found.low, found.high)
    return PhaseRow(
        phase.name, phase.goal, letter, dataset, headline.metric, found.baseline, found.candidate, found.difference,
        found.low, found.high, reached,
    )  # fmt: skip


def _reached(headline: Headline, low: float | None, high: float | None) -> Reached:
    if low is None or high is None:
        return "open"
    if falls(headline.metric):
        low, high = -high, -low
    if low > 0 and low >= headline.min_change:
        return "yes"
    return "no" if high <= 0 or high < headline.min_change else "open"
