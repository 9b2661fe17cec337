"""Keeps large test suites by digest, so that a caller sends a suite once and not with every completion."""

from evalrun_judge.submission import StdioTests
from evalrun_runtime.recently_used import RecentlyUsed


class UnknownSuiteError(Exception):
    """The tests that a request names by digest are not cached here; the caller sends them again."""


class Suites:
    """A cache bounded by the size of all texts (`StdioTests.size`); evicts the least recently used suite."""

    def __init__(self, capacity: int) -> None:
        """Start empty, with room for `capacity` bytes."""
        self._kept: RecentlyUsed[bytes, StdioTests] = RecentlyUsed(capacity, lambda tests: tests.size)

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._kept.size

    def keep(self, tests: StdioTests) -> StdioTests:
        """Cache a suite. Return the suite that was cached already, if it is equal."""
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
