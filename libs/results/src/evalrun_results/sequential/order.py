"""Orders a run's problems, so that the problems drawn so far are a random sample of all. Pure.

Short, easy answers end first, so the finished problems are no random sample. In a random order fixed beforehand, the
problems before the first unfinished problem are a random sample.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256


def order_problems(seed: int, dataset: str, problem_ids: Iterable[str]) -> list[str]:
    """Return the problems in the order in which a run of this seed draws them.

    Each problem's position comes from a hash of (seed, dataset, problem), so that any subset of the problems has the
    same relative order as among all problems.
    """
    return list(_sort_problems(seed, dataset, tuple(problem_ids)))


@lru_cache(maxsize=16)
def _sort_problems(seed: int, dataset: str, problem_ids: tuple[str, ...]) -> tuple[str, ...]:
    """Return the order. It is cached, because a gate that is checked often asks for the same order each time."""

    def place(problem_id: str) -> bytes:
        return sha256("\0".join((str(seed), dataset, problem_id)).encode("utf-8", "surrogatepass")).digest()

    return tuple(sorted(problem_ids, key=place))
