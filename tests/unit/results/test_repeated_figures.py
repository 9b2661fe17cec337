"""The pass ratio is left out where it would repeat pass@1."""

import pytest

from evalrun_results.repeated_figures import find_repeated_figures


@pytest.mark.parametrize(
    ("datasets", "expected"),
    [
        ({}, False),
        ({"a": {"counts": {"with_several_tests": 0}}}, True),
        ({"a": {"counts": {"with_several_tests": 0}}, "b": {"counts": {"with_several_tests": 3}}}, False),
        ({"a": {"counts": {}}}, False),
        ({"a": "of another shape"}, False),
    ],
)
def test_repeated_figures_of_datasets_returns_the_pass_ratio(datasets: dict[str, object], expected: bool) -> None:
    assert ("pass_ratio_mean" in find_repeated_figures(datasets)) == expected
