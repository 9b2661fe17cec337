"""The text by which Python ends a program that lacks a package."""

import subprocess
import sys

import pytest

from evalrun_judge.cpython_texts import parse_missing_package, parse_package

TRACEBACK = b'Traceback (most recent call last):\n  File "<program>", line 1\nModuleNotFoundError: '


def test_missing_package_of_this_python_is_named() -> None:
    ended = subprocess.run([sys.executable, "-c", "import no_such.module"], capture_output=True, check=False)
    assert parse_missing_package(ended.stderr) == "no_such", f"Python {sys.version} says it otherwise"


@pytest.mark.parametrize(
    ("stderr", "package"),
    [
        (TRACEBACK + b"No module named 'scipy.linalg'\n", "scipy"),
        (TRACEBACK + b"No module named 'scipy'\nKeyError: 1\n", ""),
        (TRACEBACK + b"No module named '\x1b[31m'\n", ""),
        (b"", ""),
    ],
)
def test_missing_package_is_read_from_the_last_line(stderr: bytes, package: str) -> None:
    assert parse_missing_package(stderr) == package


@pytest.mark.parametrize(
    ("module", "package"), [("a.b", "a"), ("a", "a"), ("", ""), ("a b", ""), ("x" * 65, ""), (1, ""), (None, "")]
)
def test_package_of_untrusted_module_is_a_name_or_empty(module: object, package: str) -> None:
    assert parse_package(module) == package
