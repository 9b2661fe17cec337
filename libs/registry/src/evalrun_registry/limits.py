"""The limits of a test and their defaults.

Wire types (the API's `TestLimits`, `judge.proto`'s `Limits`, the sandbox's `Limits`) hold the same fields and are built
from these types or become one of them.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class TestLimits:
    """Limits of each test."""

    # pytest collects classes called Test*.
    __test__ = False

    time_seconds: float = 10.0
    """CPU seconds."""
    memory_mib: int = 1024
    output_kib: int = 65536
    """Maximum size of stdout and of stderr, each."""


DEFAULT_LIMITS: Final = TestLimits()
CONTEST_LIMITS: Final = TestLimits(time_seconds=30.0)
"""Defaults of stdin/stdout problems and of graders: verl's scorers import for four CPU seconds."""
BARE_OUTPUT_KIB: Final = 1024
"""Output limit of a sandbox request that sets no limit: such a request does not come from a judge."""
MAX_LOG_PROBS: Final = 131_072
"""Log-probabilities of a completion that are stored: half a MiB, and some 15 MiB in a server's reply."""


@dataclass(frozen=True, slots=True)
class PartialLimits:
    """The limits that a problem or a dataset sets; None: not set."""

    time_seconds: float | None = None
    """CPU seconds of each test."""
    memory_mib: int | None = None
    output_kib: int | None = None

    def complete(self, default: TestLimits) -> TestLimits:
        """Return all limits, with the default if none is set."""
        return TestLimits(
            self.time_seconds or default.time_seconds,
            self.memory_mib or default.memory_mib,
            self.output_kib or default.output_kib,
        )

    def or_else(self, other: "PartialLimits") -> "PartialLimits":
        """Return these limits, with those of `other` if none is set."""
        return PartialLimits(
            self.time_seconds or other.time_seconds,
            self.memory_mib or other.memory_mib,
            self.output_kib or other.output_kib,
        )


UNSET_LIMITS: Final = PartialLimits()
