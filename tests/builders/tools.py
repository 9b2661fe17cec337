"""What a level of tests cannot do without."""

import os
from typing import NoReturn

import pytest


def missing(why: str) -> NoReturn:
    """Skip the test for a missing tool, saying which and how to get it; in CI, where it must be there, fail."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"in CI this test must run: {why}")
    pytest.skip(why)
