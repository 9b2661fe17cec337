"""The tables at the end of a run."""

from typing import Any

from rich.console import Console

from evalrun_cli.results_table import ENDS, results_tables


def summary(**dataset: Any) -> dict[str, Any]:
    figure = {"value": 0.5, "low": 0.25, "high": 0.75}
    made = {
        "coverage": 1.0,
        "counts": {"problems": 4, "final_status": {"success": 2, "wrong_answer": 2}},
        "metrics": {"accepted_at_1": figure, "pass_ratio_mean": figure},
        **dataset,
    }
    return {"state": "Succeeded", "datasets": {"contest": made}}


def shown(content: dict[str, Any], width: int = 80) -> list[str]:
    console = Console(width=width, record=True, file=None, quiet=False)
    with console.capture() as capture:
        for table in results_tables(content):
            console.print(table)
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_acceptance_by_turn_is_shown_with_the_recovery_rate() -> None:
    found = {"value": 0.5, "low": 0.25, "high": 0.75, "n": 4}
    names = ("accepted_at_1", "pass_ratio_mean", "accepted_by_turn_1", "accepted_by_turn_2", "recovery_rate")
    counts = {"problems": 4, "final_status": {}, "left_out_problems": {"recovery_rate": 1}}
    lines = shown(summary(metrics=dict.fromkeys(names, found), counts=counts))
    assert "contest accepted by turn 2 50.0 % 25.0 % to 75.0 % 4" in lines
    assert "contest recovery rate 50.0 % 25.0 % to 75.0 % 4, 1 left out" in lines
    assert not [line for line in lines if "by turn 1" in line]


def test_figures_and_ends_of_each_dataset_are_shown() -> None:
    lines = shown(summary())
    assert "contest 4 50.0 % 25.0 % to 75.0 % 50.0 % 100.0 %" in lines
    assert "dataset success answer" in lines
    assert "contest 2 2" in lines


def test_judged_problems_are_shown_with_the_number_of_all() -> None:
    figure = {"value": 1.0, "low": 0.9, "high": 1.0, "n": 100}
    counts = {"problems": 164, "not_judged": 64, "final_status": {"success": 100}}
    found = summary(coverage=0.6098, counts=counts, metrics=dict.fromkeys(("accepted_at_1", "pass_ratio_mean"), figure))
    found["datasets"]["contest"]["accepted_bounds"] = [0.6098, 1.0]
    lines = shown({**found, "state": "Degraded", "partial": "64 of 164 problems lack an answer"})
    assert "Degraded, partial" in lines
    assert "contest 100 of 164 100.0 % 90.0 % to 100.0 % 100.0 % 61.0 %" in lines
    assert "contest pass@1, bounds 61.0 % to 100.0 % 164" in lines


def test_further_metrics_of_the_protocol_are_shown_in_order_of_k() -> None:
    def figure(value: float, n: int = 4) -> dict[str, Any]:
        return {"value": value, "low": value / 2, "high": value, "n": n}

    plain = summary()
    asked = {"pass_at_10": figure(0.9, 3), "pass_at_2": figure(0.6), "solved_within_budget": figure(0.8)}
    asked["flip_rate"] = figure(0.02)
    dataset = plain["datasets"]["contest"]
    dataset["metrics"] |= asked
    dataset["counts"]["left_out_problems"] = {"pass_at_2": 0, "pass_at_10": 1}
    lines = shown(plain)
    assert [line for line in lines if line.startswith("contest")] == [
        "contest 4 50.0 % 25.0 % to 75.0 % 50.0 % 100.0 %",
        "contest pass@2 60.0 % 30.0 % to 60.0 % 4",
        "contest pass@10 90.0 % 45.0 % to 90.0 % 3, 1 left out",
        "contest solved within budget 80.0 % 40.0 % to 80.0 % 4",
        "contest noise floor 2.0 % 1.0 % to 2.0 % 4",
        "contest 2 2",
    ]


def test_names_are_whole_at_80_columns_and_stand_in_the_specs_order() -> None:
    content = summary()
    dataset = content["datasets"].pop("contest")
    dataset["metrics"] |= {"pass_at_2": {"value": 0.5, "low": 0.0, "high": 1.0, "n": 4}}
    names = ["humaneval", "codecontests_valid", "codecontests_test", "a_set_with_a_name_of_40_characters_in_all"]
    content["datasets"] = dict.fromkeys(names, dataset)
    lines = shown(content)
    for table in (lines[:14], lines[14:]):
        first = [line.split()[0] for line in table if line.split()[:1] and line.split()[0] in names]
        assert [name for name in names[:3] if name in first] == names[:3]
        assert first[:3] == names[:3]


def test_protocol_without_further_metrics_shows_no_empty_table() -> None:
    assert sum(line.startswith("contest") for line in shown(summary())) == 2


def test_answers_that_were_not_judged_give_bounds_of_the_score() -> None:
    counts = {"problems": 4, "not_judged": 1, "final_status": {"success": 2, "wrong_answer": 1, "api_error": 1}}
    lines = shown(summary(coverage=0.75, counts=counts, accepted_bounds=[0.5, 0.75]))
    assert "contest pass@1, bounds 50.0 % to 75.0 % 4" in lines


def test_judged_together_share_is_shown_below_the_score() -> None:
    counts = {"problems": 4, "judged": 4, "judged_together": 1, "final_status": {"success": 4}}
    assert "contest judged together, can be forged 25.0 % 1 of 4" in shown(summary(counts=counts))
    assert not [line for line in shown(summary()) if "together" in line]


def test_comparators_are_shown_only_if_their_verdicts_differ() -> None:
    counts = {"would_accept": 1, "would_reject": 3, "accepted": 0}
    lines = shown(summary(comparators={"otherwise": {"exact": counts}}))
    assert "Comparators that would decide otherwise" in lines
    assert "contest exact 1 3 0" in lines
    for agreed in (summary(), summary(comparators={"changed_answers": 0, "otherwise": {}, "examples": []})):
        assert not any("Comparators" in line for line in shown(agreed))


def test_table_of_80_columns_shows_every_figure_and_column_whole() -> None:
    made = summary()
    figure = {"value": 1.0, "low": 1.0, "high": 1.0}
    ends = dict.fromkeys(ENDS, 9) | {"success": 99999, "api_error": 12345}
    counts = {"problems": 13328, "final_status": ends}
    dataset = {"coverage": 1.0, "counts": counts, "metrics": {"accepted_at_1": figure, "pass_ratio_mean": figure}}
    made["datasets"] = dict.fromkeys(("codecontests_valid", "humaneval"), dataset)
    lines = shown(made)
    for name in made["datasets"]:
        assert f"{name} 13328 100.0 % 100.0 % to 100.0 % 100.0 % 100.0 %" in lines
        assert f"{name} 99999 9 9 9 9 9 12345" in lines
    assert not any(line.startswith("%") for line in lines)


def test_causes_of_not_judged_answers_are_listed_with_their_counts() -> None:
    causes = {"api_error: the test uses [red]patch": 2, "no verdict came": 1}
    counts = {"problems": 4, "not_judged": 3, "not_judged_causes": causes, "final_status": {"api_error": 3}}
    lines = shown(summary(accepted_bounds=[0.0, 0.75], counts=counts))
    assert [line for line in lines[lines.index("Why answers were not judged") :] if line.startswith("contest")] == [
        "contest 2 api_error: the test uses [red]patch",
        "contest 1 no verdict came",
    ]


def test_results_tables_dataset_without_metrics_shows_its_counts() -> None:
    lines = shown(summary(metrics={}))
    assert "contest 4 - - - 100.0 %" in lines
    assert any(line.startswith("contest 2 2") for line in lines)


def test_six_final_statuses_fit_beside_the_name_at_60_columns() -> None:
    ends = dict.fromkeys([status for status in ENDS if status != "api_error"], 999)
    lines = shown(summary(counts={"problems": 4, "final_status": {**ends, "api_error": 0}}), width=60)
    assert "contest 999 999 999 999 999 999" in lines


def test_a_figure_about_fewer_problems_says_about_how_many() -> None:
    figures = {"accepted_at_1": {"value": 0.5, "low": 0.25, "high": 0.75, "n": 4}}
    figures["pass_ratio_mean"] = {"value": 0.25, "low": 0.1, "high": 0.5, "n": 3}
    assert "contest pass ratio 25.0 % 10.0 % to 50.0 % 3" in shown(summary(metrics=figures))
    figures["pass_ratio_mean"]["n"] = 4
    assert not [line for line in shown(summary(metrics=figures)) if line.startswith("contest pass ratio")]
