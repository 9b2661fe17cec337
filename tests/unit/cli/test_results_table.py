"""The tables at the end of a run."""

from typing import Any

from rich.console import Console

from evalrun_cli.results_table import results_tables


def summary(**dataset: Any) -> dict[str, Any]:
    figure = {"value": 0.5, "low": 0.25, "high": 0.75}
    made = {
        "coverage": 1.0,
        "counts": {"problems": 4, "final_status": {"success": 2, "wrong_answer": 2}},
        "metrics": {"accepted_at_1": figure, "pass_ratio_mean": figure},
        **dataset,
    }
    return {"state": "Succeeded", "datasets": {"contest": made}}


def shown(content: dict[str, Any]) -> list[str]:
    console = Console(width=80, record=True, file=None, quiet=False)
    with console.capture() as capture:
        for table in results_tables(content):
            console.print(table)
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_figures_and_ends_of_each_dataset_are_shown() -> None:
    lines = shown(summary())
    assert "contest 4 50.0 % 25.0 % to 75.0 % 50.0 % 100.0 %" in lines
    assert "contest 2 2 0 0 0 0 0" in lines


def test_comparators_are_shown_only_where_they_would_decide_otherwise() -> None:
    counts = {"would_accept": 1, "would_reject": 3, "accepted": 0}
    lines = shown(summary(comparators={"otherwise": {"exact": counts}}))
    assert "Comparators that would decide otherwise" in lines
    assert "contest exact 1 3 0" in lines
    for agreed in (summary(), summary(comparators={"changed_answers": 0, "otherwise": {}, "examples": []})):
        assert not any("Comparators" in line for line in shown(agreed))
