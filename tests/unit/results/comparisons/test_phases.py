"""The phase table: headline figures of each phase beside the first."""

import pytest
from builders.results.samples import sample_result
from builders.results.stored_runs import facts_of, verdicts_of

from evalrun_results.comparisons.comparison import RunFacts
from evalrun_results.comparisons.phases import PhaseRow, phase_rows
from evalrun_results.comparisons.several import compare_several, configurations_of

TEST = "codecontests_test"


def rows_of(*runs: RunFacts) -> tuple[PhaseRow, ...]:
    return phase_rows(compare_several(configurations_of(runs, pool_seeds=False), all_pairs=False))


def run(syntax_errors: int, accepted: int, place: str) -> RunFacts:
    """100 problems of which some do not compile, some are accepted, and the rest are wrong."""
    ends = ["compile_error"] * syntax_errors + ["success"] * accepted
    ends += ["wrong_answer"] * (100 - len(ends))
    return facts_of((sample_result(n, 0, [end], dataset=TEST) for n, end in enumerate(ends)), place=place)


def test_each_phase_is_held_to_its_own_headline_figures() -> None:
    found = rows_of(run(40, 10, "base"), run(5, 10, "sft"), run(40, 10, "dpo"), run(40, 40, "grpo"), run(40, 10, "fix"))
    assert [(each.phase, each.letter, each.metric, each.reached) for each in found] == [
        ("1 SFT", "B", "exec_success_rate", "yes"),
        ("1 SFT", "B", "syntax_error_rate", "yes"),
        ("2 DPO", "C", "pass_ratio_mean", "open"),
        ("2 DPO", "C", "zero_reward_rate", "open"),
        ("3 GRPO", "D", "accepted_at_1", "yes"),
        ("4 repair", "E", "recovery_rate", "-"),
    ]
    assert (found[1].baseline, found[1].value) == (0.4, 0.05)
    assert found[1].difference == pytest.approx(-0.35)


def test_a_figure_that_moves_the_other_way_is_no() -> None:
    assert {each.reached for each in rows_of(run(5, 10, "base"), run(60, 10, "sft"))} == {"no"}


def test_a_gain_of_less_than_three_points_is_not_what_online_rl_is_for() -> None:
    other = [run(0, 40, name) for name in ("base", "sft", "dpo")]
    (row,) = (each for each in rows_of(*other, run(0, 41, "grpo")) if each.phase == "3 GRPO")
    assert row.reached == "open"


def test_a_dataset_that_no_run_has_is_said_to_be_missing() -> None:
    runs = [facts_of(verdicts_of([True] * 40), place=name) for name in ("base", "sft", "dpo", "grpo")]
    (row,) = (each for each in rows_of(*runs) if each.phase == "3 GRPO")
    assert (row.dataset, row.value, row.reached) == (TEST, None, "-")


def test_there_are_five_phases() -> None:
    with pytest.raises(ValueError, match="6 runs: there are 5 phases, 0 baseline first"):
        rows_of(*(run(0, 10, str(number)) for number in range(6)))
