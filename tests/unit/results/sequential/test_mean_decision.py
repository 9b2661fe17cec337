"""When a sequential gate decides: once, by the values in their order, on what is complete."""

import math

import numpy as np
import pytest

from evalrun_results.metrics.intervals import Floats
from evalrun_results.sequential.confidence_sequence import DIFFERENCE
from evalrun_results.sequential.expected_size import problems_needed
from evalrun_results.sequential.mean_decision import MeanDecision, Population, Values, count_until_decision, decide_mean
from evalrun_results.sequential.order import order_problems


def values_of(changes: Floats, drawn: int | None = None) -> Values:
    """Return the gains of a run whose baseline solved whatever was lost, and half of the rest."""
    solved = np.where(changes < 0, 1.0, np.where(changes > 0, 0.0, np.arange(changes.shape[-1]) % 2))
    seen = changes[..., :drawn]
    return Values(seen, seen, -solved, 1 - solved, DIFFERENCE)


def changes(gained: int, lost: int, size: int, seed: int = 0) -> Floats:
    found = np.zeros(size)
    found[:gained], found[gained : gained + lost] = 1.0, -1.0
    return np.random.default_rng(seed).permutation(found)


@pytest.mark.parametrize(("gained", "lost", "answer"), [(30, 5, MeanDecision.AT_LEAST), (0, 60, MeanDecision.BELOW)])
def test_clear_difference_is_decided_before_the_end(gained: int, lost: int, answer: MeanDecision) -> None:
    found = decide_mean(values_of(changes(gained, lost, 500)), -0.02, "benchmark", 0.95)
    assert (found.answer, found.decided_after) == (answer, found.looked_at)
    assert found.looked_at < 300
    assert (found.low >= -0.02) if answer is MeanDecision.AT_LEAST else (found.high <= -0.02)


@pytest.mark.parametrize("lost", [9, 10, 11])
def test_benchmark_drawn_completely_is_decided_exactly_at_the_margin(lost: int) -> None:
    """-0.02 of 500 problems are 10 losses: that many are allowed, one more is not."""
    found = decide_mean(values_of(changes(0, lost, 500)), -0.02, "benchmark", 0.95)
    assert found.answer is (MeanDecision.AT_LEAST if lost <= 10 else MeanDecision.BELOW)


def test_small_difference_over_similar_problems_stays_open() -> None:
    found = decide_mean(values_of(changes(10, 12, 200)), -0.02, "similar", 0.95)
    assert (found.answer, found.decided_after, found.looked_at) == (MeanDecision.OPEN, None, 200)


def test_first_decision_is_kept_however_late_the_look() -> None:
    """Gains later make a loss good again: whoever looks at the end meets the decision of whoever looked early."""
    early = np.concatenate([-np.ones(40), np.ones(300)])
    first = decide_mean(values_of(early, 60), -0.02, "similar", 0.95)
    assert first.answer is MeanDecision.BELOW
    for drawn in (first.looked_at, 100, 340):
        later = decide_mean(values_of(early, drawn), -0.02, "similar", 0.95)
        assert (later.answer, later.decided_after) == (first.answer, first.decided_after)
        assert (later.low, later.high) == pytest.approx((first.low, first.high))


def test_order_of_a_part_of_the_problems_agrees_with_the_order_of_all() -> None:
    names = [f"p{place}" for place in range(200)]
    order = order_problems(7, "mbpp", names)
    assert sorted(order) == sorted(names)
    assert order != names
    part = order_problems(7, "mbpp", names[:50])
    assert part == [name for name in order if name in set(names[:50])]
    assert order_problems(8, "mbpp", names) != order
    assert order_problems(7, "other", names) != order


@pytest.mark.parametrize("population", ["benchmark", "similar"])
def test_wrong_decisions_are_as_rare_as_promised(population: Population) -> None:
    """The truth is just below what is asked for: where a wrong PASS is likeliest."""
    rng = np.random.default_rng(11)
    problems = changes(8, 15, 300)  # -2.3 points
    places = np.argsort(rng.random((1000, 300)), axis=1)
    drawn = problems[places] if population == "benchmark" else rng.choice(problems, (1000, 300))
    after = count_until_decision(values_of(drawn), -0.02, population, 0.025)
    assert (after > 0).mean() <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / 1000)


def test_mean_decision_by_the_first_finished_answers_errs_more_often_than_promised() -> None:
    """Short, easy answers end first, and the candidate's losses are among the hard ones: the first to end look fine.

    512 answers are out at a time, as with two replicas. Whoever takes what has ended for a sample passes a candidate
    that is 5 points worse than allowed more often than not; complete prefixes of the same runs err as rarely as
    promised.
    """
    rng = np.random.default_rng(5)
    size, runs, out = 1000, 200, 512
    problems = changes(0, 70, size)
    wrong_by_ends = wrong_by_prefixes = 0
    for _ in range(runs):
        order = rng.permutation(problems)
        seconds = rng.exponential(np.where(order < 0, 60.0, 5.0))
        begun = np.zeros(size)
        free = np.zeros(out)
        for place in range(size):  # the next problem begins when a slot is free
            slot = int(free.argmin())
            begun[place] = free[slot]
            free[slot] += seconds[place]
        by_end = order[np.argsort(begun + seconds)]
        wrong_by_ends += int(count_until_decision(values_of(by_end), -0.02, "benchmark", 0.025)) > 0
        wrong_by_prefixes += int(count_until_decision(values_of(order), -0.02, "benchmark", 0.025)) > 0
    assert wrong_by_ends > 0.5 * runs
    assert wrong_by_prefixes <= runs * (0.025 + 3 * math.sqrt(0.025 * 0.975 / runs))


def test_not_judged_problems_leave_the_decision_open() -> None:
    """A tenth was not judged: it counts against whoever would win by it."""
    problems = changes(0, 0, 200)
    known = values_of(problems)
    lows, highs = known.lows.copy(), known.highs.copy()
    lows[:20], highs[:20] = known.floors[:20], known.ceilings[:20]
    found = decide_mean(Values(lows, highs, known.floors, known.ceilings, DIFFERENCE), -0.02, "benchmark", 0.95)
    assert found.answer is MeanDecision.OPEN
    assert found.low == pytest.approx(-0.05)
    assert decide_mean(known, -0.02, "benchmark", 0.95).answer is MeanDecision.AT_LEAST


def test_problems_needed_grows_with_the_share_of_flips_and_is_none_if_too_few() -> None:
    few = problems_needed(1055, 0.05, -0.02, "benchmark", 0.95)
    many = problems_needed(1055, 0.20, -0.02, "benchmark", 0.95)
    assert few is not None
    assert many is not None
    assert few < 0.7 * 1055 < many <= 1055
    assert problems_needed(164, 0.10, -0.02, "similar", 0.95) is None
