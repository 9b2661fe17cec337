"""The unbiased estimate of pass@k. Pure."""

import math


def pass_at_k(samples: int, accepted: int, k: int) -> float:
    """Return the unbiased estimate of the probability that at least one of k samples is accepted: 1 - C(n-c, k) / C(n,
    k).

    The quotient is computed as the product of (1 - k / i) for i in n-c+1..n (Chen et al. 2021, arXiv:2107.03374),
    which stays in range where the binomials have hundreds of digits, summed as logarithms, where a long product
    would lose digits.

    Args:
        samples: n, the judged samples of the problem.
        accepted: c, how many of them were accepted.
        k: at most n.

    Raises:
        ValueError: not 0 <= c <= n, or not 1 <= k <= n.
    """
    if not 0 <= accepted <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} of {accepted} accepted in {samples} samples is not defined")
    if accepted == 0:
        return 0.0
    if samples - accepted < k:
        return 1.0
    # The product is symmetric in c and k: C(n-c, k) / C(n, k) = C(n-k, c) / C(n, c). The shorter product is more exact.
    few, many = sorted((accepted, k))
    return -math.expm1(math.fsum(math.log1p(-many / i) for i in range(samples - few + 1, samples + 1)))


def default_ks(samples: int) -> tuple[int, ...]:
    """Return the default values of k: those of 1, 10 and 100 that do not exceed n."""
    return tuple(k for k in (1, 10, 100) if k <= samples)
