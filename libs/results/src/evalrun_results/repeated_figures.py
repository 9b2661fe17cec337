"""Finds metrics that only repeat another metric, so that no table shows them. Pure."""

from collections.abc import Mapping
from typing import Final

from evalrun_results.report.json_access import inside

RATIO_OF_TESTS: Final = "pass_ratio_mean"


def find_repeated_figures(datasets: Mapping[str, object]) -> frozenset[str]:
    """Return the metrics to leave out: the pass ratio, if no completion was judged by more than one test.

    Args:
        datasets: of summary.json. An older run does not count completions with several tests: everything is shown.
    """
    several = [inside(dataset, "counts", "with_several_tests") for dataset in datasets.values()]
    return frozenset({RATIO_OF_TESTS}) if several and all(count == 0 for count in several) else frozenset()
