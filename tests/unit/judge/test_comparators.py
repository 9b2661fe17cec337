"""Comparators: the table of docs/verdicts.md, case by case."""

import time
from dataclasses import replace

import pytest

from evalrun_judge.comparators import find_disagreeing_comparators, passes, rests_on
from evalrun_registry.comparators import COMPUTED, Comparator, Leniency

EXACT, VERL, FUSION, TOKENS, STANDARD = (
    "exact", "verl", "sandbox-fusion", "tokens",
    "standard",
)  # fmt: skip

ADDED = {*COMPUTED} - {EXACT, VERL, FUSION, TOKENS, STANDARD}
"""Comparators that the tables below do not know yet."""

# what, expected, stdout, the comparators that pass
ORDINARY: list[tuple[str, bytes, bytes, set[str]]] = [
    ("the same", b"5\n", b"5\n", {EXACT, VERL, FUSION, TOKENS, STANDARD}),
    ("no last newline", b"5\n", b"5", {VERL, FUSION, TOKENS, STANDARD}),
    ("several last newlines", b"5\n", b"5\n\n\n", {VERL, FUSION, TOKENS, STANDARD}),
    ("trailing space", b"5\n", b"5 \n", {FUSION, TOKENS, STANDARD}),
    ("CRLF", b"1\n2\n", b"1\r\n2\r\n", {FUSION, TOKENS, STANDARD}),
    ("leading blank", b"5\n", b" 5\n", {FUSION, TOKENS, STANDARD}),
    ("leading blank line", b"5\n", b"\n5\n", {FUSION, TOKENS, STANDARD}),
    ("double space", b"1 2\n", b"1  2\n", {TOKENS, STANDARD}),
    ("tab for space", b"1 2\n", b"1\t2\n", {TOKENS, STANDARD}),
    ("inner blank line", b"1\n2\n", b"1\n\n2\n", {TOKENS, STANDARD}),
    ("line break for space", b"1 2\n", b"1\n2\n", {TOKENS, STANDARD}),
    ("YES for Yes", b"Yes\n", b"YES\n", {FUSION}),
    ("a third, rounded", b"0.3333333333333333\n", b"0.333333333\n", {FUSION, STANDARD}),
    ("3 for 3.0", b"3.0\n", b"3\n", {FUSION, STANDARD}),
    ("3.0 for 3", b"3\n", b"3.0\n", {FUSION}),
    ("exponents", b"1e3\n", b"1000\n", {FUSION, STANDARD}),
    ("two decimals on a line", b"0.5 1.0\n", b"0.50 1.00\n", {STANDARD}),
    ("a big integer off by one", b"1000000007\n", b"1000000008\n", {FUSION}),
    ("an integer above 64 bits, off by one", b"123456789012345678901\n", b"123456789012345678902\n", {FUSION}),
    ("plus zero", b"0.0\n", b"-0.0\n", {FUSION, STANDARD}),
    ("a wrong answer", b"5\n", b"6\n", set()),
    ("a word too many", b"5\n", b"5 6\n", set()),
    ("nothing printed", b"5\n", b"", set()),
    ("nothing expected, a newline printed", b"", b"\n", {VERL, FUSION, TOKENS, STANDARD}),
    ("nan is nan", b"nan\n", b"NaN\n", {FUSION}),
    ("nan is no number", b"1.0\n", b"nan\n", set()),
    ("inf is no number", b"1.0\n", b"inf\n", set()),
    ("too big for a float is not infinite", b"1e400\n", b"1e500\n", set()),
    ("hexadecimal is text", b"16.0\n", b"0x10\n", set()),
    ("an underscore is no digit", b"1000.5\n", b"1_000.5\n", {FUSION}),
    ("not UTF-8, the same bytes and a space", b"\xff\xfe\n", b"\xff\xfe \n", {FUSION, TOKENS, STANDARD}),
    ("not UTF-8, other bytes", b"\xff\n", b"\xfe\n", set()),
    ("case beyond ASCII", "ÅÄÖ\n".encode(), "åäö\n".encode(), {FUSION}),
]


@pytest.mark.parametrize(("what", "expected", "stdout", "passing"), ORDINARY, ids=[row[0] for row in ORDINARY])
def test_ordinary_output_passes_the_listed_comparators_only(
    what: str, expected: bytes, stdout: bytes, passing: set[str]
) -> None:
    names = (EXACT, VERL, FUSION, TOKENS, STANDARD)
    assert {name for name in names if passes(expected, stdout, Comparator(name))} == passing, what
    for name in names:  # what is reported beside a verdict is what the others really say
        passed = name in passing
        others = {other for other in names if other is not name and (other in passing) is not passed}
        assert set(find_disagreeing_comparators(expected, stdout, Comparator(name), passed)) - ADDED == others


# expected, stdout, options, passes
OPTIONS: list[tuple[bytes, bytes, Comparator, bool]] = [
    (b"Yes", b"yes", Comparator(TOKENS), False),
    (b"Yes", b"yes", Comparator(STANDARD), False),
    (b"Yes", b"yes", Comparator(TOKENS, case_sensitive=False), True),
    (b"aB", b"bA", Comparator(STANDARD), False),
    (b"Aa", b"aA", Comparator(STANDARD), False),
    (b"1.0 A", b"1.0000001 A", Comparator(STANDARD), True),
    (b"1.0 A", b"1.0000001 a", Comparator(STANDARD), False),
    (b"1.0", b"1.05", Comparator(TOKENS, abs=0.1), True),
    (b"1.0", b"1.2", Comparator(TOKENS, abs=0.1), False),
    (b"100.0", b"101", Comparator(TOKENS, rel=0.01), True),
    (b"100.0", b"102", Comparator(TOKENS, rel=0.01), False),
    (b"100.0", b"102", Comparator(TOKENS, rel=0.01, abs=3.0), True),  # one suffices
    (b"0.001", b"0.002", Comparator(TOKENS, rel=0.01, abs=0.0), False),
    (b"1.0", b"1.0000005", Comparator(STANDARD), True),
    (b"1.0", b"1.0000005", Comparator(STANDARD, abs=1e-9), False),  # a problem's own tolerance replaces it
    (b"0.0", b"0.0000005", Comparator(STANDARD, rel=1e-6), False),
    (b"0.333333", b"0.333334", Comparator(STANDARD), True),  # exactly at the tolerance, as written
    (b"0.333333", b"0.3333341", Comparator(TOKENS, abs=1e-6), False),
    (b"10", b"11", Comparator(TOKENS, abs=5.0), False),  # integers are text
    (b"9" * 5000, b"9" * 4999 + b"8", Comparator(TOKENS, abs=5.0), False),
    (
        b"1",
        b"1.0000000000",
        Comparator(TOKENS, abs=1e-6),
        True,
    ),  # the problem has a tolerance, and no integer was given
    (b"0", b"0E-93", Comparator(STANDARD, abs=1e-6), True),
    (b"1", b"1.1", Comparator(TOKENS, abs=1e-6), False),
    (b"1", b"1.0", Comparator(STANDARD), False),
    (b"1", b"1.0", Comparator(TOKENS), False),
    (b"1000000007", b"1000000008", Comparator(STANDARD, rel=1e-6), False),
    (b"1.5", b"1.5 ", Comparator(TOKENS), True),
    (b"1.50", b"1.5", Comparator(TOKENS), False),  # no tolerance: text
    (b"0.1" + b"0" * 500, b"0.1", Comparator(TOKENS, abs=0.0), True),
]


@pytest.mark.parametrize(("expected", "stdout", "comparator", "passed"), OPTIONS)
def test_comparator_options_change_the_result(
    expected: bytes, stdout: bytes, comparator: Comparator, passed: bool
) -> None:
    assert passes(expected, stdout, comparator) is passed
    for name in (EXACT, VERL, FUSION, TOKENS, STANDARD):
        named = replace(comparator, name=name)
        by_name = passes(expected, stdout, named)
        others = {
            other
            for other in (EXACT, VERL, FUSION, TOKENS, STANDARD)
            if passes(expected, stdout, replace(comparator, name=other)) is not by_name
        }
        assert set(find_disagreeing_comparators(expected, stdout, named, by_name)) - ADDED == others


def test_passes_with_comparator_checker_raises_value_error() -> None:
    with pytest.raises(ValueError, match="checker"):
        passes(b"1", b"1", Comparator("checker"))


@pytest.mark.parametrize("name", [EXACT, VERL, FUSION, TOKENS, STANDARD])
@pytest.mark.parametrize(
    ("expected", "stdout"),
    [
        (b"1234567 " * 1_250_000, b"1234567  " * 1_250_000),
        (b"7" * 10_000_000, b"7" * 9_999_999 + b"8"),
        (b"\n" * 10_000_000 + b"1", b" " * 10_000_000 + b"1"),
        (b"0." + b"1" * 10_000_000, b"0." + b"1" * 10_000_000 + b"2"),
    ],
    ids=["many tokens", "one integer", "blanks", "one decimal"],
)
def test_ten_megabytes_take_linear_time(name: str, expected: bytes, stdout: bytes) -> None:
    started = time.process_time()
    passes(expected, stdout, Comparator(name))
    assert time.process_time() - started < 3.0  # a quadratic comparison would take hours


CASE, TOLERANCE = Leniency.CASE, Leniency.TOLERANCE


@pytest.mark.parametrize(
    ("expected", "stdout", "comparator", "found"),
    [
        (b"Yes 1.0\n", b"Yes  1.0", Comparator(STANDARD), ()),
        (b"Yes\n", b"YES\n", Comparator(STANDARD, case_sensitive=False), (CASE,)),
        (b"0.5\n", b"0.5000001\n", Comparator(STANDARD), (TOLERANCE,)),
        (b"3.0\n", b"3\n", Comparator(TOKENS, abs=1e-9), (TOLERANCE,)),
        (b"No 0.5\n", b"NO 0.50\n", Comparator(STANDARD, case_sensitive=False), (CASE, TOLERANCE)),
        (b"YES\n2\n", b"yes \n2\n", Comparator(FUSION), (CASE,)),
        (b"2\n", b"2.0\n", Comparator(FUSION), (TOLERANCE,)),
        (b"2\n", b" 2 \n", Comparator(FUSION), ()),
        (b"2\n", b"2", Comparator(VERL), ()),
    ],
)
def test_rests_on_names_the_leniencies_that_an_acceptance_needs(
    expected: bytes, stdout: bytes, comparator: Comparator, found: tuple[Leniency, ...]
) -> None:
    assert passes(expected, stdout, comparator)
    assert rests_on(expected, stdout, comparator) == found
