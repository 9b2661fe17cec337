"""Comparators, which decide whether a program's output matches the expected output.

To add a comparator, write its function here and describe it in `_DESCRIBED`. Records, API, flags and judge read names,
order and texts there.

Pure functions over bytes: stdout need not be valid UTF-8, and no comparator loses a byte by decoding. Each is linear in
the length of the texts.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

STANDARD: Final = "standard"
"""The comparator that is used where nothing names another."""
CHECKER: Final = "checker"
"""The comparator that is a program of a problem's own."""


class Leniency(StrEnum):
    """Deviation of a token that an output may need to be accepted. White space, or an order of lines that a comparator
    ignores, is no leniency."""

    CASE = "case"
    TOLERANCE = "tolerance"


@dataclass(frozen=True, slots=True)
class Comparator:
    """A comparator with its options; `case_sensitive`, `abs` and `rel` matter to `tokens` and `standard` only."""

    name: str = STANDARD
    """Name of the comparator, one of `COMPARATORS`."""
    case_sensitive: bool = True
    abs: float | None = None
    """Absolute tolerance of a decimal token; None for no tolerance."""
    rel: float | None = None
    """Tolerance of a decimal token relative to the expected token; None for no tolerance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparatorRule:
    """The description of a comparator."""

    name: str
    text: str
    """Which outputs pass, for the reference of the API."""
    passes: Callable[[bytes, bytes, Comparator], bool] | None
    """Decision on an expected output, a different output, and the options; None where a program decides."""
    rests_on: Callable[[bytes, bytes, Comparator], Iterable[Leniency]] | None = None
    """Function that names the leniencies without which a passing output would have failed; None where there are no
    leniencies."""
    implies: tuple[str, ...] = ()
    """Comparators that pass whatever this comparator passes, with the same options."""
    implies_with_tolerance: tuple[str, ...] = ()
    """Further implied comparators where `abs` or `rel` is given."""


STANDARD_TOLERANCE = 1e-6

SANDBOX_FUSION_RELATIVE = 1e-5
SANDBOX_FUSION_MIN_SCALE = 1e-10

DECIMAL = re.compile(rb"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?")
"""A token written as a decimal fraction or with an exponent: only these are compared with the default tolerance."""

INTEGER = re.compile(rb"[+-]?\d+")

NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")

EXACT_DIGITS = 64
"""Tokens up to this long are compared as exact decimals where binary rounding could decide; longer ones as floats."""


def _exact(expected: bytes, stdout: bytes, comparator: Comparator) -> bool:
    del comparator
    return expected == stdout


def _verl(expected: bytes, stdout: bytes, comparator: Comparator) -> bool:
    del comparator
    return stdout.rstrip(b"\n") == expected.rstrip(b"\n")


def _sandbox_fusion(expected: bytes, stdout: bytes, comparator: Comparator) -> bool:
    del comparator
    return match_lines(_text(expected), _text(stdout))


def match_lines(expected: str, stdout: str) -> bool:
    """Return whether SandboxFusion's rule for stdin/stdout problems accepts the output.

    The rule is kept with its faults: 1000000 equals 1000001.
    """
    expected_lines, lines = expected.strip().split("\n"), stdout.strip().split("\n")
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
    as accepted print such numbers. Without such a tolerance, 1.0 does not match 1.
    """
    if not comparator.case_sensitive and _same_but_case(expected, got):
        return True
    if comparator.abs is None and comparator.rel is None:
        return False
    if NUMBER.fullmatch(expected) is None or NUMBER.fullmatch(got) is None:
        return False
    if DECIMAL.fullmatch(expected) is None and not (own_tolerance and INTEGER.fullmatch(got) is None):
        return False
    return _is_within_tolerance(expected, got, comparator.abs or 0.0, comparator.rel or 0.0)


def _same_but_case(expected: bytes, got: bytes) -> bool:
    if expected.isascii() and got.isascii():
        return expected.lower() == got.lower()
    return _text(expected).casefold() == _text(got).casefold()


def _is_within_tolerance(expected: bytes, got: bytes, absolute: float, relative: float) -> bool:
    """Return whether two numbers differ by at most the tolerance; near its edge, short numbers compare as decimals.

    As floats |0.333334 - 0.333333| is 1.0000000000287557e-06, above a tolerance of 1e-6 that the texts keep.
    """
    wanted, number = float(expected), float(got)
    if not (math.isfinite(wanted) and math.isfinite(number)):
        # Beyond a float's range, only the same text is the same number.
        return False
    bound = max(absolute, relative * abs(wanted))
    difference = abs(wanted - number)
    at_the_edge = abs(difference - bound) <= 1e-9 * bound + 1e-15 * abs(wanted)
    if not at_the_edge or len(expected) > EXACT_DIGITS or len(got) > EXACT_DIGITS:
        return difference <= bound
    # The import takes 3 ms, which a command that only lists the names need not wait for.
    from decimal import Decimal

    exact = Decimal(expected.decode("ascii"))
    exact_bound = max(Decimal(repr(absolute)), Decimal(repr(relative)) * abs(exact))
    return abs(exact - Decimal(got.decode("ascii"))) <= exact_bound


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _rests_on_lines(expected: bytes, stdout: bytes, comparator: Comparator) -> Iterable[Leniency]:
    del comparator
    texts = (_text(text).strip().split("\n") for text in (expected, stdout))
    for wanted, got in zip(*texts, strict=True):
        if wanted.strip() != got.strip():
            same = wanted.strip().lower() == got.strip().lower()
            yield Leniency.CASE if same else Leniency.TOLERANCE


def _rests_on_tokens(expected: bytes, stdout: bytes, comparator: Comparator) -> Iterable[Leniency]:
    for token, printed in zip(expected.split(), stdout.split(), strict=True):
        if token != printed:
            same = not comparator.case_sensitive and _same_but_case(token, printed)
            yield Leniency.CASE if same else Leniency.TOLERANCE


_DESCRIBED: Final = (
    ComparatorRule(name="exact", text="same bytes", passes=_exact, implies=("verl",)),
    ComparatorRule(
        name="verl", text="same except for newlines at the end", passes=_verl, implies=("sandbox-fusion", "tokens")
    ),
    ComparatorRule(
        name="sandbox-fusion",
        text="line by line, ignoring case, numbers within 1e-5 relative",
        passes=_sandbox_fusion,
        rests_on=_rests_on_lines,
    ),
    ComparatorRule(
        name="tokens",
        text="tokens separated by white space, with the options below",
        passes=_tokens,
        rests_on=_rests_on_tokens,
        implies=(STANDARD,),
    ),
    ComparatorRule(
        name=STANDARD,
        text="tokens with abs = rel = 1e-6",
        passes=_standard,
        rests_on=_rests_on_tokens,
        implies_with_tolerance=("tokens",),
    ),
    ComparatorRule(name=CHECKER, text="a program that is part of the problem's own record", passes=None),
)

COMPARATORS: Final[Mapping[str, ComparatorRule]] = MappingProxyType({each.name: each for each in _DESCRIBED})
"""By name, in the order in which messages list them: what is quick to compute and implies others comes first,
and the checker last."""

COMPUTED: Final = tuple(each.name for each in _DESCRIBED if each.passes is not None)
"""Names of the comparators that compare the texts by themselves, which a run may name for any problem."""
