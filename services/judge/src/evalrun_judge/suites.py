"""Keeps large test suites by digest, so that a caller sends a suite once and not with every completion."""

from evalrun_judge.submission import StdioTests
from evalrun_runtime.recently_used import RecentlyUsed


class UnknownSuiteError(Exception):
    """The tests that a request names by digest are not kept here; the caller sends them again."""


class Suites:
    """Bounded by the size of all texts (`StdioTests.size`); the suite that was used least recently goes first."""

    def __init__(self, capacity: int) -> None:
        """Start empty, with room for `capacity` bytes."""
        self._kept: RecentlyUsed[bytes, StdioTests] = RecentlyUsed(capacity, lambda tests: tests.size)

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._kept.size

    def keep(self, tests: StdioTests) -> StdioTests:
        """Keep a suite. Return the suite that was kept already, if there is an equal suite."""
        known = self._kept.get(tests.digest)
        if known is not None:
            return known
        self._kept.put(tests.digest, tests)
        return tests

    def find(self, digest: bytes) -> StdioTests:
        """Return a suite. Raises UnknownSuiteError."""
        found = self._kept.get(digest)
        if found is None:
            raise UnknownSuiteError(f"the tests with digest {digest.hex()} are not kept here; send them")
        return found
