"""docs/troubleshooting.md: what it quotes from the program stands in the program."""

import re

import pytest
from builders.data import PROJECT_ROOT

PAGE = (PROJECT_ROOT / "docs" / "troubleshooting.md").read_text()
SYMPTOMS = sorted(
    {quoted for row in re.findall(r"^\| ([^|]+) \|", PAGE, re.MULTILINE) for quoted in re.findall(r"`([^`]+)`", row)}
)
SOURCES = "\n".join(
    path.read_text()
    for directory in ("libs", "services", "operator")
    for path in (PROJECT_ROOT / directory).rglob("*.py")
)  # fmt: skip


def test_page_quotes_at_least_15_symptoms() -> None:
    assert len(SYMPTOMS) >= 15


@pytest.mark.parametrize("quoted", SYMPTOMS)
def test_a_quoted_symptom_is_in_the_code(quoted: str) -> None:
    assert quoted in SOURCES
