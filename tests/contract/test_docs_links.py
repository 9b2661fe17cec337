"""Every link between our pages leads somewhere, no page is half merged, and the index of docs/ names every page."""

import re
from pathlib import Path

import pytest
from builders.data import PROJECT_ROOT

DOCS = PROJECT_ROOT / "docs"
PAGES = [
    *sorted(PROJECT_ROOT.glob("*.md")),
    PROJECT_ROOT / "benchmarks" / "README.md",
    PROJECT_ROOT / "examples" / "README.md",
    *sorted(DOCS.rglob("*.md")),
]


def headings(page: Path) -> set[str]:
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT_ROOT)))
def test_links_point_to_existing_files_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in headings(linked), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT_ROOT)))
def test_no_page_holds_merge_conflict_markers(page: Path) -> None:
    assert re.findall(r"^(?:<{7}|={7}|>{7})(?: .*)?$", page.read_text(), re.MULTILINE) == []


def test_the_index_names_every_page() -> None:
    linked = {(DOCS / target).resolve() for target in re.findall(r"\]\(([^)\s#]+)", (DOCS / "README.md").read_text())}
    pages = {page for page in DOCS.rglob("*.md") if "decisions" not in page.parts and page.name != "README.md"}
    assert pages - linked == set()


def test_decision_records_are_numbered_without_gaps_and_begin_with_the_decision() -> None:
    records = sorted((DOCS / "decisions").glob("*.md"))
    assert [record.name[:5] for record in records] == [f"{number:04}-" for number in range(1, len(records) + 1)]
    for number, record in enumerate(records, start=1):
        title, _, text, *_ = record.read_text().splitlines()
        assert title.startswith(f"# {number}. "), record.name
        assert text.startswith("**Decision.** "), record.name
