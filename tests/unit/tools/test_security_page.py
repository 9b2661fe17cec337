"""The threat model names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_test_that_the_page_names_exists() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    known = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))
    }
    named = set(re.findall(r"`(test_\w{4,})`", page))
    assert len(named) >= 10
    assert named - known == set()
    for path in re.findall(r"`(tests/[^`]+)`", page):
        assert (ROOT / path).exists(), path
