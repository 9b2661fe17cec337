import pytest

from evalrun_judge.comparators import passes
from evalrun_registry.comparators import Comparator, match_lines

CASES = [
    ("YES\n", "yes", True),
    ("  1 \n 2\n\n", "1\n2", True),
    ("1\r\n2\r\n", "1\n2", True),
    ("1\n\n2", "1\n2", False),
    ("1  2", "1 2", False),
    ("1\t2", "1 2", False),
    ("1 2.0", "1 2", False),
    ("1000001", "1000000", True),
    ("1000011", "1000000", False),
    ("0.333333", "0.3333331", True),
    ("1e-16", "0", True),
    ("1e-15", "0", False),
    ("nan", "NaN", True),
    ("nan", "1", False),
    ("inf", "Infinity", False),
    ("1_000", "1000", True),
    ("", "", True),
    ("", "0", False),
]


@pytest.mark.parametrize(("stdout", "expected", "same"), CASES)
def test_match_lines_accepts_the_outputs_that_the_stock_server_accepts(stdout: str, expected: str, same: bool) -> None:
    assert match_lines(expected, stdout) is same
    assert passes(expected.encode(), stdout.encode(), Comparator("sandbox-fusion")) is same


def test_match_lines_takes_texts_that_are_not_utf8() -> None:
    assert match_lines("\ud800 A", "\ud800 a")
