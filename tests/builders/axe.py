"""axe-core in a page of Chromium: what it finds that keeps people from reading or using the page."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from builders.browser import Browser

SERIOUS = frozenset({"serious", "critical"})


async def serious_findings(browser: Browser) -> list[str]:
    """Return what axe finds of serious or critical impact in the page as it is: rule, element, and what is wrong."""
    await browser.run(f"{_script()}; 0")
    found: list[dict[str, Any]] = (await browser.run("axe.run(document, {resultTypes: ['violations']})"))["violations"]
    return [
        f"{violation['id']}: {node['html'][:160]}: {' '.join(str(node.get('failureSummary')).split())}"
        for violation in found
        if violation["impact"] in SERIOUS
        for node in violation["nodes"]
    ]


@cache
def _script() -> str:
    # The package's modules import Playwright, which is not installed: its script alone is read.
    package = find_spec("axe_playwright_python")
    if package is None or not package.submodule_search_locations:
        raise RuntimeError("axe-playwright-python is not installed: make .venv/.dev")
    return (Path(package.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")
