"""axe-core on report.html in a real Chromium."""

from pathlib import Path

import pytest
from builders.axe import serious_findings
from builders.browser import CHROMIUM, open_browser
from builders.results.samples import sample_result
from builders.results.stored_runs import samples_of, write_run

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path: apt-get install chromium")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious_in_the_report(tmp_path: Path, scheme: str) -> None:
    statuses = ["success", "wrong_answer", "runtime_error", "compile_error", "timeout", None]
    rows = samples_of([(10, 3), (10, 7)] * 5, dataset="many")
    for place, status in enumerate(statuses * 3):
        rows.append(sample_result(f"few/{place}", 0, None if status is None else [status, "success"], dataset="few"))
    report = write_run(tmp_path / "night", rows) / "report.html"
    async with open_browser(tmp_path / "profile") as browser:
        await browser.look(1280, scheme=scheme)
        await browser.open(report.as_uri())
        await browser.until("document.querySelectorAll('table').length > 2")
        await browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert await serious_findings(browser) == []
