"""What becomes of races between runs of which one leads."""

import numpy as np

from evalrun_results.sequential.expected_race import RaceField, expect_race, make_runs


def test_runs_are_made_with_the_lead_and_the_differences_that_are_asked_for() -> None:
    field = RaceField(runners=4, problems=1000, solved=0.6, differ=0.1, lead=0.05)
    values = make_runs(field, np.random.default_rng(1))
    assert values.mean(axis=1).tolist() == [0.65, 0.6, 0.6, 0.6]
    differ = [float(np.abs(values[1] - values[other]).mean()) for other in (2, 3)]
    assert all(0.15 < share < 0.2 for share in differ)


def test_a_larger_lead_is_found_with_fewer_answers() -> None:
    found = [expect_race(RaceField(5, 300, 0.5, 0.1, lead), "benchmark") for lead in (0.02, 0.1)]
    assert found[1].needed < found[0].needed
    assert found[1].decided > 0.95


def test_race_of_equal_runs_is_rarely_decided() -> None:
    assert expect_race(RaceField(3, 200, 0.5, 0.1, 0.0), "similar").decided < 0.1


def test_make_runs_with_an_impossible_share_of_changes_stays_in_range() -> None:
    values = make_runs(RaceField(2, 10, 0.9, 0.9, 0.5), np.random.default_rng(1))
    assert values.shape == (2, 10)
    assert values.max() == 1.0
