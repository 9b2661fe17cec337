from fractions import Fraction
from math import comb

import numpy as np
import pytest

from evalrun_results.metrics.pass_at_k import default_ks, pass_at_k


def exact(n: int, c: int, k: int) -> Fraction:
    return 1 - Fraction(comb(n - c, k), comb(n, k))


def test_pass_at_k_agrees_with_exact_fractions_for_every_small_case() -> None:
    for n in range(1, 26):
        for c in range(n + 1):
            for k in range(1, n + 1):
                assert pass_at_k(n, c, k) == pytest.approx(float(exact(n, c, k)), rel=1e-14), (n, c, k)


def test_pass_at_k_agrees_with_the_papers_product_over_random_cases() -> None:
    rng = np.random.default_rng(7)
    for _ in range(300):
        n = int(rng.integers(1, 400))
        c, k = int(rng.integers(0, n + 1)), int(rng.integers(1, n + 1))
        paper = 1.0 if n - c < k else 1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1))
        assert pass_at_k(n, c, k) == pytest.approx(paper, abs=1e-12), (n, c, k)


@pytest.mark.parametrize(
    ("n", "c", "k"),
    [(100_000, 1, 1), (100_000, 3, 100), (100_000, 50_000, 2), (1_000_000, 7, 500_000), (200_000, 1, 199_999)],
)
def test_pass_at_k_stays_exact_with_binomials_of_thousands_of_digits(n: int, c: int, k: int) -> None:
    # C(n-c, k) / C(n, k) = C(n-k, c) / C(n, c): the form with the smaller binomials keeps the exact side quick.
    few, many = sorted((c, k))
    expected = 1 - Fraction(comb(n - many, few), comb(n, few))
    assert pass_at_k(n, c, k) == pytest.approx(float(expected), rel=1e-12)


def test_pass_at_k_is_the_mean_over_all_choices_of_k_samples() -> None:
    rng = np.random.default_rng(11)
    samples = np.array([1, 1, 0, 0, 0, 0, 0, 0])
    drawn = [samples[rng.permutation(8)[:3]].any() for _ in range(20_000)]
    assert pass_at_k(8, 2, 3) == pytest.approx(np.mean(drawn), abs=0.015)


@pytest.mark.parametrize(("n", "c", "k"), [(5, 6, 1), (5, -1, 1), (5, 2, 6), (5, 2, 0), (0, 0, 1)])
def test_pass_at_k_of_undefined_arguments_raises_value_error(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="not defined"):
        pass_at_k(n, c, k)


def test_default_ks_do_not_exceed_n() -> None:
    assert [default_ks(n) for n in (1, 9, 10, 200)] == [(1,), (1,), (1, 10), (1, 10, 100)]
