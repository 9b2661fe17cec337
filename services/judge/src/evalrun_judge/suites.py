"""Large test suites that callers sent, by digest: a caller sends one once and not with each of a problem's answers."""

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
        """Keep a suite; gives the one that was kept already, where there is one."""
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
