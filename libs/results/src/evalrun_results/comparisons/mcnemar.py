"""McNemar's exact test: did two runs solve the same problems equally often? Pure."""


def mcnemar_exact(lost: int, gained: int) -> float:
    """Return the two-sided p-value of McNemar's exact test (McNemar 1947, with the binomial distribution itself).

    Under the null a problem that only one run solved is equally likely to be solved by either run: the smaller of the
    two counts is Binomial(lost + gained, 1/2), and its tail is doubled. Problems with the same outcome in both runs
    carry no information.

    Args:
        lost: problems that only the first run solved.
        gained: problems that only the second run solved.

    Raises:
        ValueError: a count is negative.
    """
    if lost < 0 or gained < 0:
        raise ValueError(f"{lost} lost and {gained} gained problems")
    differing = lost + gained
    # This is C(n, 0). Whole numbers lose no digit, however many problems there are.
    ways = tail = 1
    for count in range(1, min(lost, gained) + 1):
        ways = ways * (differing - count + 1) // count
        tail += ways
    return min(1.0, 2 * tail / (1 << differing))
