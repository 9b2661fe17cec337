"""The phase table: headline figures of each phase beside the first."""

from dataclasses import replace

import pytest
from builders.results.samples import sample_result
from builders.results.stored_runs import facts_of, verdicts_of

from evalrun_results.comparisons.comparison import RunFacts
from evalrun_results.comparisons.conditions import older_rules
from evalrun_results.comparisons.phases import PHASES, PhaseRow, compare_phases, explain_outdated_baselines
from evalrun_results.comparisons.several import compare_several, make_configurations

TEST = "codecontests_test"


def rows_of(*runs: RunFacts) -> tuple[PhaseRow, ...]:
    return compare_phases(compare_several(make_configurations(runs, pool_seeds=False), all_pairs=False)).rows


def run(syntax_errors: int, accepted: int, place: str, **info: object) -> RunFacts:
    """100 problems of which some do not compile, some are accepted, and the rest are wrong."""
    ends = ["compile_error"] * syntax_errors + ["success"] * accepted
    ends += ["wrong_answer"] * (100 - len(ends))
    return facts_of(
        (sample_result(n, 0, [end], dataset=TEST) for n, end in enumerate(ends)), place=place, **said(place), **info
    )


def said(phase: str) -> dict[str, object]:
    """Return the part of run_info.json by which a run says its phase; `none`: it says none."""
    return {} if phase == "none" else {"spec": {"lineage": {"phase": phase}}}


def test_each_phase_is_held_to_its_own_headline_figures() -> None:
    found = rows_of(
        run(40, 10, "base"), run(5, 10, "sft"), run(40, 10, "dpo"), run(40, 40, "grpo"), run(40, 10, "repair")
    )
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


def test_figure_that_moves_the_other_way_is_not_reached() -> None:
    assert {each.reached for each in rows_of(run(5, 10, "base"), run(60, 10, "sft"))} == {"no"}


def test_gain_below_three_points_leaves_the_grpo_phase_open() -> None:
    other = [run(0, 40, name) for name in ("base", "sft", "dpo")]
    (row,) = (each for each in rows_of(*other, run(0, 41, "grpo")) if each.phase == "3 GRPO")
    assert row.reached == "open"


def test_dataset_that_no_run_has_is_shown_as_missing() -> None:
    runs = [facts_of(verdicts_of([True] * 40), place=name, **said(name)) for name in ("base", "sft", "dpo", "grpo")]
    (row,) = (each for each in rows_of(*runs) if each.phase == "3 GRPO")
    assert (row.dataset, row.value, row.reached) == (TEST, None, "-")


def test_compare_phases_a_phase_that_is_left_out_shifts_no_other() -> None:
    found = rows_of(run(40, 10, "none"), run(5, 10, "GRPO"), run(5, 10, "sft"))
    assert [(each.phase, each.letter) for each in found] == [("1 SFT", "C"), ("1 SFT", "C"), ("3 GRPO", "B")]


def test_compare_phases_a_run_without_its_phase_is_refused() -> None:
    runs = [run(40, 10, "base"), run(5, 10, "none")]
    found = compare_several(make_configurations(runs, pool_seeds=False), all_pairs=False)
    with pytest.raises(ValueError, match=r"none says no phase: write spec\.lineage\.phase, or PHASE=none here"):
        compare_phases(found)
    assert {each.phase for each in compare_phases(found, {"none": PHASES[1]}).rows} == {"1 SFT"}
    with pytest.raises(ValueError, match="sft is of the phase 1 SFT: name the baseline first"):
        rows_of(run(40, 10, "sft"), run(40, 10, "base"))
    with pytest.raises(ValueError, match="says the phase 'rlhf', which is not known"):
        rows_of(run(40, 10, "base"), run(40, 10, "rlhf"))


@pytest.mark.parametrize(("value", "low", "high", "reached"), [
    (0.3, 0.22, 0.4, "yes"), (0.1, 0.05, 0.15, "no"), (0.2, 0.1, 0.3, "open"), (None, None, None, "-"),
])  # fmt: skip
def test_compare_phases_recovery_rate_is_held_to_its_own_value(
    value: float | None, low: float | None, high: float | None, reached: str
) -> None:
    repaired = run(0, 40, "repair")
    figure = {"recovery_rate": {"value": value, "low": low, "high": high}}
    repaired = replace(repaired, summary={"datasets": {TEST: {"metrics": figure}}})
    (row,) = rows_of(run(0, 40, "base"), repaired)
    assert (row.baseline, row.value, row.difference, row.low, row.reached) == (None, value, None, low, reached)


def test_outdated_baselines_after_another_judge_are_named() -> None:
    judged = [{"judges": {"a": {"judge_version": version}}} for version in ("0.1", "0.2")]
    runs = [run(0, 10, name, **info) for name, info in zip(("base", "sft"), judged, strict=True)]
    found = compare_several(make_configurations(runs, pool_seeds=False), all_pairs=False)
    (line,) = explain_outdated_baselines(found)
    assert line.startswith("A must be measured again before it is compared with B: judge version")
    same = [run(0, 10, name, **judged[0]) for name in ("base", "sft")]
    assert [
        *explain_outdated_baselines(compare_several(make_configurations(same, pool_seeds=False), all_pairs=False))
    ] == []


@pytest.mark.parametrize(
    ("first", "second", "older"),
    [
        ({"judging_rules": 1}, {"judging_rules": 2}, "A"), ({"judging_rules": 2}, {}, "B"),
        ({}, {"judging_rules": 2}, "A"),
        ({}, {}, ""), ({"judging_rules": 2}, {"judging_rules": 2}, ""), ({"judging_rules": 2}, None, ""),
    ],
)  # fmt: skip
def test_older_rules_of_one_run_are_named_with_the_remedy(
    first: dict[str, int], second: dict[str, int] | None, older: str
) -> None:
    infos = [{"judges": {} if judge is None else {"a": judge}} for judge in (first, second)]
    lines = [*older_rules(infos[0], infos[1], ("A", "B"))]
    assert [line.split()[0] for line in lines] == ([older] if older else [])
    assert all("evalrun rejudge" in line for line in lines)
