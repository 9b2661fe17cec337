import pytest
from scipy.stats import binomtest
from statsmodels.stats.contingency_tables import mcnemar

from evalrun_results.comparisons.mcnemar import mcnemar_exact

TABLES = [(0, 0), (1, 0), (0, 5), (0, 6), (3, 3), (7, 8), (2, 16), (25, 39), (120, 134), (500, 400), (0, 2000)]


@pytest.mark.parametrize(("lost", "gained"), TABLES)
def test_the_p_value_is_that_of_statsmodels(lost: int, gained: int) -> None:
    other = mcnemar([[40, lost], [gained, 60]], exact=True)
    assert mcnemar_exact(lost, gained) == pytest.approx(other.pvalue, rel=1e-9)


@pytest.mark.parametrize(("lost", "gained"), [table for table in TABLES if sum(table)])
def test_the_p_value_is_that_of_scipys_sign_test(lost: int, gained: int) -> None:
    assert mcnemar_exact(lost, gained) == pytest.approx(binomtest(lost, lost + gained).pvalue, rel=1e-9)


@pytest.mark.parametrize(("lost", "gained"), TABLES)
def test_p_value_is_the_same_with_the_runs_exchanged(lost: int, gained: int) -> None:
    assert mcnemar_exact(lost, gained) == mcnemar_exact(gained, lost) <= 1.0


def test_tens_of_thousands_of_flips_stay_exact() -> None:
    assert mcnemar_exact(20_000, 20_000) == 1.0
    assert mcnemar_exact(9_800, 10_200) == pytest.approx(binomtest(9_800, 20_000).pvalue, rel=1e-9)


def test_negative_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="-1 lost"):
        mcnemar_exact(-1, 3)
