"""A run that is compared with itself."""

from pathlib import Path

from builders.results.stored_runs import verdicts_of, write_run

from evalrun_cli.comparisons.views import compare_two


def test_compare_run_with_itself_warns_that_both_are_the_same_run(tmp_path: Path) -> None:
    run = str(write_run(tmp_path / "a", verdicts_of([True] * 30)))
    other = str(write_run(tmp_path / "b", verdicts_of([True] * 30)))
    assert compare_two(run, run).warnings[0] == f"A and B are the same run, {run}: nothing can differ"
    assert not any("the same run" in line for line in compare_two(run, other).warnings)
