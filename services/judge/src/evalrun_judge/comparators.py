"""The comparators: does what a program printed answer what was expected?

Pure functions over bytes: stdout need not be valid UTF-8, and no comparator loses a byte by decoding. Each is linear in
the length of the texts. `checker` is not here: it is a program, run in the sandbox (see `checker`).
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum


class ComparatorName(StrEnum):
    """The comparators a data set or a problem can name."""

    EXACT = "exact"
    VERL = "verl"
    SANDBOX_FUSION = "sandbox-fusion"
    TOKENS = "tokens"
    STANDARD = "standard"
    CHECKER = "checker"


class Leniency(StrEnum):
    """Deviation, other than white space, that an output may need to be accepted."""

    CASE = "case"
    TOLERANCE = "tolerance"


@dataclass(frozen=True, slots=True)
class Comparator:
    """A comparator with its options; `case_sensitive`, `abs` and `rel` matter to `tokens` and `standard` only."""

    name: ComparatorName = ComparatorName.STANDARD
    case_sensitive: bool = True
    abs: float | None = None
    """Absolute tolerance of a decimal token; None: none."""
    rel: float | None = None
    """Tolerance of a decimal token relative to the expected one; None: none."""


STANDARD_TOLERANCE = 1e-6

SANDBOX_FUSION_RELATIVE = 1e-5
SANDBOX_FUSION_MIN_SCALE = 1e-10

DECIMAL = re.compile(rb"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?")
"""A token written as a decimal fraction or with an exponent: only these are compared with the default tolerance."""

INTEGER = re.compile(rb"[+-]?\d+")

NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")

EXACT_DIGITS = 64
"""Tokens up to this long are compared as exact decimals where binary rounding could decide; longer ones as floats."""


def passes(expected: bytes, stdout: bytes, comparator: Comparator) -> bool:
    """Return whether `stdout` answers `expected`.

    Raises:
        ValueError: the comparator is `checker`, which is no function of the two texts.
    """
    decide = _RULES.get(comparator.name)
    if decide is None:
        raise ValueError(f"{comparator.name} is not computed from the texts")
    return expected == stdout or decide(expected, stdout, comparator)


def disagreeing(expected: bytes, stdout: bytes, comparator: Comparator, passed: bool) -> tuple[ComparatorName, ...]:
    """Name the comparators that would have decided otherwise than `comparator`, which decided `passed`.

    The others take the same options where they have any; `tokens` alone has no tolerance unless one is given.
    """
    if expected == stdout:
        return () if passed else tuple(_RULES)
    same_but_last_lines = _verl(expected, stdout, comparator)  # all but `exact` follow: no need to compute them
    verdicts: dict[ComparatorName, bool] = {}
    for name, decide in _RULES.items():
        if name is comparator.name:
            continue
        if name is ComparatorName.EXACT or same_but_last_lines:
            verdicts[name] = name is not ComparatorName.EXACT
            continue
        follows = _follows(name, comparator, passed)
        verdicts[name] = decide(expected, stdout, comparator) if follows is None else follows
    return tuple(name for name, verdict in verdicts.items() if verdict is not passed)


def rests_on(expected: bytes, stdout: bytes, comparator: Comparator) -> tuple[Leniency, ...]:
    """Return without which leniencies of its comparator an output that passed would have failed."""
    found: set[Leniency] = set()
    if comparator.name is ComparatorName.SANDBOX_FUSION:
        texts = (_text(text).strip().split("\n") for text in (expected, stdout))
        for wanted, got in zip(*texts, strict=True):
            if wanted.strip() != got.strip():
                same = wanted.strip().lower() == got.strip().lower()
                found.add(Leniency.CASE if same else Leniency.TOLERANCE)
    elif comparator.name in (ComparatorName.TOKENS, ComparatorName.STANDARD):
        for token, printed in zip(expected.split(), stdout.split(), strict=True):
            if token != printed:
                same = not comparator.case_sensitive and _same_but_case(token, printed)
                found.add(Leniency.CASE if same else Leniency.TOLERANCE)
    return tuple(leniency for leniency in Leniency if leniency in found)


def _follows(name: ComparatorName, comparator: Comparator, passed: bool) -> bool | None:
    """Return what `name` decides where that follows from what `comparator` decided; None: it must be computed.

    With a tolerance that was given `tokens` and `standard` are the same; without one `standard` accepts more.
    """
    if {name, comparator.name} != {ComparatorName.TOKENS, ComparatorName.STANDARD}:
        return None
    if comparator.abs is not None or comparator.rel is not None:
        return passed
    return passed if passed is (name is ComparatorName.STANDARD) else None


def _exact(expected: bytes, stdout: bytes, comparator: Comparator) -> bool:
    del comparator
    return expected == stdout


def _verl(expected: bytes, stdout: bytes, comparator: Comparator) -> bool:
    del comparator
    return stdout.rstrip(b"\n") == expected.rstrip(b"\n")


def _sandbox_fusion(expected: bytes, stdout: bytes, comparator: Comparator) -> bool:
    """SandboxFusion's rule for stdin/stdout problems, its tolerance for integers included (bug for bug)."""
    del comparator
    expected_lines = _text(expected).strip().split("\n")
    lines = _text(stdout).strip().split("\n")
    return len(lines) == len(expected_lines) and all(map(_same_line, expected_lines, lines))


def _same_line(expected: str, got: str) -> bool:
    if expected == got or expected.strip().lower() == got.strip().lower():
        return True
    try:
        wanted, number = float(expected), float(got)
    except ValueError:
        return False
    return abs(number - wanted) / max(abs(wanted), SANDBOX_FUSION_MIN_SCALE) < SANDBOX_FUSION_RELATIVE


def _tokens(expected: bytes, stdout: bytes, comparator: Comparator, own_tolerance: bool = True) -> bool:
    expected_tokens, tokens = expected.split(), stdout.split()
    if len(tokens) != len(expected_tokens):
        return False
    return tokens == expected_tokens or all(
        wanted == got or _same_token(wanted, got, comparator, own_tolerance)
        for wanted, got in zip(expected_tokens, tokens, strict=True)
    )


def _standard(expected: bytes, stdout: bytes, comparator: Comparator) -> bool:
    if comparator.abs is None and comparator.rel is None:
        comparator = replace(comparator, abs=STANDARD_TOLERANCE, rel=STANDARD_TOLERANCE)
        return _tokens(expected, stdout, comparator, own_tolerance=False)
    return _tokens(expected, stdout, comparator)


def _same_token(expected: bytes, got: bytes, comparator: Comparator, own_tolerance: bool) -> bool:
    """Compare two tokens.

    Two integers are compared as text: a tolerance would accept a wrong count or remainder. Where a problem has a
    tolerance of its own, 1.0000000000 answers 1, as its setters meant: five of the 209 contest programs that were filed
    as accepted print such numbers. Without one, 1.0 does not answer 1.
    """
    if not comparator.case_sensitive and _same_but_case(expected, got):
        return True
    if comparator.abs is None and comparator.rel is None:
        return False
    if NUMBER.fullmatch(expected) is None or NUMBER.fullmatch(got) is None:
        return False
    if DECIMAL.fullmatch(expected) is None and not (own_tolerance and INTEGER.fullmatch(got) is None):
        return False
    return _within(expected, got, comparator.abs or 0.0, comparator.rel or 0.0)


def _same_but_case(expected: bytes, got: bytes) -> bool:
    if expected.isascii() and got.isascii():
        return expected.lower() == got.lower()
    return _text(expected).casefold() == _text(got).casefold()


def _within(expected: bytes, got: bytes, absolute: float, relative: float) -> bool:
    """Compare as the decimals that were written where that can be done cheaply.

    As floats |0.333334 - 0.333333| is 1.0000000000287557e-06, above a tolerance of 1e-6 that the texts keep.
    """
    wanted, number = float(expected), float(got)
    if not (math.isfinite(wanted) and math.isfinite(number)):
        return False  # beyond a float's range: only the same text is the same number
    bound = max(absolute, relative * abs(wanted))
    difference = abs(wanted - number)
    at_the_edge = abs(difference - bound) <= 1e-9 * bound + 1e-15 * abs(wanted)
    if not at_the_edge or len(expected) > EXACT_DIGITS or len(got) > EXACT_DIGITS:
        return difference <= bound
    exact = Decimal(expected.decode("ascii"))
    exact_bound = max(Decimal(repr(absolute)), Decimal(repr(relative)) * abs(exact))
    return abs(exact - Decimal(got.decode("ascii"))) <= exact_bound


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


_RULES: dict[ComparatorName, Callable[[bytes, bytes, Comparator], bool]] = {
    ComparatorName.EXACT: _exact,
    ComparatorName.VERL: _verl,
    ComparatorName.SANDBOX_FUSION: _sandbox_fusion,
    ComparatorName.TOKENS: _tokens,
    ComparatorName.STANDARD: _standard,
}
